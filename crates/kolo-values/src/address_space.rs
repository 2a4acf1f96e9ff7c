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

/// Makes the GNU C library reserve addresses for one heap. Otherwise each thread that allocates by it, as
/// every one does when it starts, reserves 64 MiB, up to eight for each core. For programs with an allocator
/// of their own: threads that share a heap wait for one another. Does nothing with another C library.
pub fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    {
        /// See malloc.h.
        const M_ARENA_MAX: i32 = -8;
        unsafe extern "C" {
            /// See mallopt(3).
            safe fn mallopt(parameter: i32, value: i32) -> i32;
        }
        // If it refuses, nothing but addresses is lost.
        let _ = mallopt(M_ARENA_MAX, 1);
    }
}
