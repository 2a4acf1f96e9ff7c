//! What tells this process from all others.

use std::time::SystemTime;

use kolo_rendezvous::hash::{fnv1a, splitmix64};

/// Where this process runs, in words.
pub(crate) fn new_place() -> String {
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "an unknown host".into());
    format!("{} (process {})", host.trim(), std::process::id())
}

/// An id that nobody else has, on any host and after any restart: a hash of boot, process and time.
pub(crate) fn unique_id() -> u64 {
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let thread = std::thread::current().id();
    let text = format!("{boot} {} {thread:?} {}", std::process::id(), since_1970.as_nanos());
    splitmix64(fnv1a(text.as_bytes()))
}
