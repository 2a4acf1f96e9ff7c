//! The children of a process, as the kernel lists them.

use std::fs;
use std::path::Path;

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
