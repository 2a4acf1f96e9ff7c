//! Limit and number of open files and connections of a rank.

use rustix::process::{Resource, getppid, getrlimit};
use serde::{Deserialize, Serialize};

/// Environment variable in which `kolo launch` passes its process id.
const LAUNCHER_PID: &str = "KOLO_LAUNCHER_PID";

/// Open files and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFiles {
    /// Hard limit, to which this process can raise its limit; `None` if unlimited.
    pub limit: Option<u64>,
    /// Number in use while the process belongs to the group of the job.
    pub used: u64,
    /// Files of its launcher, if that is Kolo's and its limits can be read.
    pub launcher: Option<LauncherFiles>,
}

/// Open files and connections of `kolo launch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherFiles {
    /// Hard limit, to which it raises its limit.
    pub limit: u64,
    /// Number in use while its workers belong to the group of the job.
    pub used: u64,
}

impl LauncherFiles {
    /// Reads those of the parent of this process if it is `kolo launch`; `None` also if it has no limit.
    fn of_parent() -> Option<LauncherFiles> {
        let parent = getppid()?.as_raw_nonzero();
        let launcher: i32 = std::env::var(LAUNCHER_PID).ok()?.parse().ok()?;
        if launcher != parent.get() {
            return None;
        }
        let limits = std::fs::read_to_string(format!("/proc/{parent}/limits")).ok()?;
        let used = std::fs::read_dir(format!("/proc/{parent}/fd")).ok()?.count() as u64;
        Some(LauncherFiles { limit: hard_limit(&limits)?, used })
    }
}

/// Parses the hard limit of open files in the text of `/proc/<pid>/limits` (proc(5)).
fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

impl OpenFiles {
    /// Reads the files of this process, which belongs to the group of the job.
    pub fn here() -> OpenFiles {
        let used = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
        let limit = getrlimit(Resource::Nofile).maximum;
        OpenFiles { limit, used, launcher: LauncherFiles::of_parent() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_is_the_second_number() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             7823                 7824                 processes \n\
                    Max open files            1024                 524288               files     \n";
        assert_eq!(hard_limit(text), Some(524_288));
        assert_eq!(
            hard_limit("Max open files            1024                 unlimited            files"),
            None
        );
        assert!(std::fs::read_to_string("/proc/self/limits").unwrap().contains("Max open files"));
    }
}
