//! The worker processes of a launcher, found in `/proc`.

use std::fs;

use kolo_elastic::MEMBER;

/// Returns the launcher's members that are neither dead nor stopped, in the order of their start, which is
/// that of their ranks.
///
/// A child that has forked but not yet executed its program still has the launcher's environment, and does
/// not count.
pub(super) fn living_workers(launcher: u32) -> Vec<i32> {
    let works = |pid: &i32| state(*pid).is_some_and(|state| !"ZXT".contains(state));
    children(launcher).into_iter().filter(|pid| is_member(*pid)).filter(works).collect()
}

/// True if the process exists and is not dead.
pub(super) fn is_there(pid: i32) -> bool {
    state(pid).is_some_and(|state| !"ZX".contains(state))
}

/// True if the process was started with a member's name in its environment.
fn is_member(pid: i32) -> bool {
    let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let names = variables.split(|byte| *byte == 0).map(|text| text.split(|byte| *byte == b'=').next());
    names.into_iter().any(|name| name == Some(MEMBER.as_bytes()))
}

/// Returns the child processes of all threads of the launcher: the kernel lists a child under the thread that
/// started it.
fn children(launcher: u32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{launcher}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Returns the state letter of `/proc/<pid>/stat`. It follows the program's name, which stands in parentheses
/// and may contain any character.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Duration;

    use super::*;

    /// Polls a condition: the kernel fills in `/proc` a moment after a process has executed its program.
    fn eventually(what: impl Fn() -> bool) -> bool {
        (0..5000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            what()
        })
    }

    #[test]
    fn the_dead_are_not_counted() {
        let sleep = |variable: &str| Command::new("sleep").arg("60").env(variable, "a/0").spawn().unwrap();
        let (mut member, mut other) = (sleep(MEMBER), sleep("OTHER"));
        let pid = |child: &Child| child.id() as i32;
        let mine = || living_workers(std::process::id());
        assert!(eventually(|| mine().contains(&pid(&member))));
        assert!(eventually(|| children(std::process::id()).contains(&pid(&other))));
        assert!(!mine().contains(&pid(&other)));
        member.kill().unwrap();
        // The process is dead, but its parent has not waited for it.
        assert!(eventually(|| state(pid(&member)) == Some('Z')));
        assert!(!mine().contains(&pid(&member)));
        other.kill().unwrap();
        for child in [&mut member, &mut other] {
            child.wait().unwrap();
        }
    }
}
