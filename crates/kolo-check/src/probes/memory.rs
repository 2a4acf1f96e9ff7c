//! Memory that a rank can use.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cgroup;

/// Memory that is free, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes that the host can give without swapping.
    pub available: u64,
    /// Limits of this rank's control groups. Ranks in groups of their own may share the limit of a parent.
    pub limits: Vec<Limit>,
}

/// A limit that some processes of a host share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Control group; ranks with the same one share the limit.
    pub group: String,
    /// Limit in bytes.
    pub bytes: u64,
    /// Bytes left; the cache of inactive files counts as free.
    pub left: u64,
}

impl Memory {
    /// Reads the memory of this process, now.
    pub fn here() -> Memory {
        let about = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let available = field(&about, "MemAvailable:").map_or(u64::MAX, |kib| kib * 1024);
        let folders = cgroup::folders("memory");
        Memory { available, limits: folders.iter().filter_map(|folder| limit(folder)).collect() }
    }

    /// Bytes that this process can get: those of the host, or the rest of a limit if that is less.
    pub fn free(&self) -> u64 {
        self.limits.iter().map(|limit| limit.left).fold(self.available, u64::min)
    }
}

/// Reads the limit of one control group, in either version.
fn limit(folder: &Path) -> Option<Limit> {
    let either = |second: &str, first: &str| {
        cgroup::number(&folder.join(second)).or_else(|| cgroup::number(&folder.join(first)))
    };
    let bytes = either("memory.max", "memory.limit_in_bytes")?;
    // Version 1 has the largest multiple of a page for no limit.
    if bytes >= 9e18 {
        return None;
    }
    let used = either("memory.current", "memory.usage_in_bytes").unwrap_or(0.0);
    let about = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let files = field(&about, "total_inactive_file").or_else(|| field(&about, "inactive_file")).unwrap_or(0);
    let used = (used - files as f64).max(0.0);
    Some(Limit { group: cgroup::name(folder), bytes: bytes as u64, left: (bytes - used).max(0.0) as u64 })
}

fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_can_be_read_again_are_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(limit(folder.path()), None);
        write("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit(folder.path()), None);
        write("memory.limit_in_bytes", "1000\n");
        write("memory.usage_in_bytes", "700\n");
        write("memory.stat", "cache 650\ntotal_inactive_file 600\n");
        assert_eq!(limit(folder.path()).unwrap().left, 900);
        assert!(Memory::here().available > 0);
    }
}
