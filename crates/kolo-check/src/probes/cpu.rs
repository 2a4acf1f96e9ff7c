//! Share of its host's processors that a rank may use.

use std::path::{Path, PathBuf};

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::cgroup;

/// A share of a host's processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Numbers of the processors on which this rank may run.
    pub allowed: Vec<usize>,
    /// CPU time of its control groups, as limited for a container. Ranks in groups of their own may share the
    /// quota of a parent.
    pub quotas: Vec<Quota>,
}

/// CPU time that some processes of a host share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    /// Control group; ranks with the same one share the quota.
    pub group: String,
    /// Limit in processors.
    pub processors: f64,
}

impl Cpu {
    /// Reads the limits of this process.
    pub fn here() -> Cpu {
        let set = rustix::thread::sched_getaffinity(None);
        let allowed = set.map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect());
        let folders = cgroup::folders("cpu");
        let of = |folder: &PathBuf| Some(Quota { group: cgroup::name(folder), processors: quota(folder)? });
        Cpu { allowed: allowed.unwrap_or_default(), quotas: folders.iter().filter_map(of).collect() }
    }
}

/// Reads the quota of one control group, in processors: `cpu.max` in version 2, two files in version 1.
fn quota(folder: &Path) -> Option<f64> {
    let second = std::fs::read_to_string(folder.join("cpu.max")).ok();
    let number = |name: &str| cgroup::number(&folder.join(name));
    let (time, period) = match &second {
        Some(text) => {
            let mut words = text.split_whitespace().map(|word| word.parse::<f64>().ok());
            (words.next()??, words.next()??)
        }
        None => (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?),
    };
    // Version 1 has -1 for no limit.
    (time > 0.0 && period > 0.0).then_some(time / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_processors() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(quota(folder.path()), None);
        write("cpu.cfs_quota_us", "150000\n");
        write("cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(folder.path()), Some(1.5));
        write("cpu.cfs_quota_us", "-1\n");
        assert_eq!(quota(folder.path()), None);
        write("cpu.max", "max 100000\n");
        assert_eq!(quota(folder.path()), None);
        write("cpu.max", "50000 100000\n");
        assert_eq!(quota(folder.path()), Some(0.5));
        assert!(!Cpu::here().allowed.is_empty());
    }
}
