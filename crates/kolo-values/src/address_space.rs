//! Addresses that this process may have (`ulimit -v`).

use rustix::process::{Resource, getrlimit};

/// Returns the bytes of addresses that this process may have; `None` without a limit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Returns the bytes that this process has in memory, each of which has an address.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kilobytes.unwrap_or(0) * 1024
}
