//! How many files and connections a rank may have open.

use rustix::process::{Resource, getppid, getrlimit};
use serde::{Deserialize, Serialize};

/// Set by `kolo launch`: its process id.
const LAUNCHER_PID: &str = "KOLO_LAUNCHER_PID";

/// Open files and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFiles {
    /// Most that this process may have, once the limit is raised as far as the system lets it.
    pub limit: Option<u64>,
    /// Those that it has while it belongs to the group of the job.
    pub used: u64,
    /// Those of its launcher, where that is Kolo's and can be asked.
    pub launcher: Option<LauncherFiles>,
}

/// Open files and connections of `kolo launch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherFiles {
    /// Most that it may have: it raises its limit as far as the system lets it.
    pub limit: u64,
    /// Those that it has while its workers belong to the group of the job.
    pub used: u64,
}

impl LauncherFiles {
    /// Those of this process's parent, where that is `kolo launch`; `None` also where it has no limit.
    fn of_parent() -> Option<LauncherFiles> {
        let parent = getppid()?.as_raw_nonzero();
        let said: i32 = std::env::var(LAUNCHER_PID).ok()?.parse().ok()?;
        if said != parent.get() {
            return None;
        }
        let limits = std::fs::read_to_string(format!("/proc/{parent}/limits")).ok()?;
        let used = std::fs::read_dir(format!("/proc/{parent}/fd")).ok()?.count() as u64;
        Some(LauncherFiles { limit: hard_limit(&limits)?, used })
    }
}

/// The hard limit of open files, from the text of `/proc/<pid>/limits` (proc(5)).
fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

impl OpenFiles {
    /// Of this process, which belongs to the group of the job.
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
