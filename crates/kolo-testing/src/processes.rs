//! Processes from outside: children, as the kernel lists them, signals, and waiting.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Exceeded only by a hang, even on the busiest machine.
const HANG: Duration = Duration::from_secs(120);

/// Returns the children of all threads of a process; the kernel lists each child under the thread that
/// started it. Returns none for a process or a thread that has ended.
pub fn children(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Returns the children that run a program (its path may contain links) by process id, the oldest first
/// unless ids have wrapped around.
pub fn children_that_run(program: impl AsRef<Path>, parent: u32) -> Vec<u32> {
    let program = fs::canonicalize(program).expect("the program is there");
    let runs = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == program);
    let mut found: Vec<u32> = children(parent).into_iter().filter(runs).collect();
    found.sort_unstable();
    found
}

/// Returns true if a process exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Sends a signal, such as `KILL`, to processes.
pub fn send(signal: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    let sent = Command::new("kill").arg(format!("-{signal}")).args(pids).status();
    assert!(sent.is_ok_and(|status| status.success()), "{signal} cannot be sent");
}

/// Returns true if this process, and so every one that it starts, ignores the signal of this number, as a
/// script's background jobs ignore SIGINT.
pub fn ignores(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal - 1)) != 0
}

/// Waits until `holds` returns true.
pub fn wait_until(otherwise: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + HANG;
    while !holds() {
        assert!(Instant::now() < until, "{otherwise}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
