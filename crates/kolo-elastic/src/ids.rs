//! Unique ids, and a description of this process.

use std::time::SystemTime;

use kolo_rendezvous::hash::{fnv1a, splitmix64};

/// Describes the host and process, for messages.
pub(crate) fn new_place() -> String {
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "an unknown host".into());
    format!("{} (process {})", host.trim(), std::process::id())
}

/// Creates an id that is unique across hosts and restarts: a hash of boot, process and time.
pub(crate) fn unique_id() -> u64 {
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let thread = std::thread::current().id();
    let text = format!("{boot} {} {thread:?} {}", std::process::id(), since_1970.as_nanos());
    splitmix64(fnv1a(text.as_bytes()))
}
