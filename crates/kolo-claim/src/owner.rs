//! The process that has made a claim, and its liveness.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// A process, distinct from every other one of any host and any time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Name of its host.
    pub host: String,
    /// Process number on its host.
    pub pid: u32,
    /// Start of the process, in clock ticks since the host's start, because process numbers are reused.
    /// `None` if the system does not report it.
    started: Option<u64>,
    /// Boot id of the host, and namespace of its process numbers (a container has its own). `None` if the
    /// system does not report them.
    place: Option<(String, String)>,
    /// Random id of the process: machines restored from one snapshot have the same `place` and the same
    /// numbers. `None` if the system provides none.
    #[serde(default)]
    drawn: Option<String>,
}

/// Liveness of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The process lives.
    Alive,
    /// The process has ended.
    Dead,
    /// The process cannot be checked from here: it is on another host, or in another container.
    Unknown,
}

impl Owner {
    /// Returns the current process.
    pub fn this_process() -> Owner {
        let pid = std::process::id();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let numbers = fs::read_link("/proc/self/ns/pid").ok();
        let place = boot
            .zip(numbers)
            .map(|(boot, numbers)| (boot.trim().to_owned(), numbers.to_string_lossy().into_owned()));
        static DRAWN: OnceLock<Option<String>> = OnceLock::new();
        let draw = || Some(fs::read_to_string("/proc/sys/kernel/random/uuid").ok()?.trim().to_owned());
        let drawn = DRAWN.get_or_init(draw).clone();
        Owner { host, pid, started: process(pid).map(|process| process.started), place, drawn }
    }

    /// Liveness of the process, as far as this process can check it.
    pub fn liveness(&self) -> Liveness {
        let here = Owner::this_process();
        if self.place.is_none() || self.place != here.place {
            return Liveness::Unknown;
        }
        if self.pid == here.pid && self.started == here.started && self.drawn != here.drawn {
            // The process with this number is this one, so the owner is on another machine.
            return Liveness::Unknown;
        }
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Liveness::Dead };
        // This check works even if `/proc` shows only a user's own processes.
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return Liveness::Dead;
        }
        match process(self.pid) {
            // A launcher may reap its workers late.
            Some(process) if process.is_zombie || Some(process.started) != self.started => Liveness::Dead,
            Some(_) => Liveness::Alive,
            None => Liveness::Unknown,
        }
    }
}

#[cfg(test)]
impl Owner {
    pub(crate) fn of_test(pid: u32) -> Owner {
        let drawn = Some(format!("drawn by {pid}"));
        Owner { pid, started: process(pid).map(|process| process.started), drawn, ..Owner::this_process() }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

struct Process {
    is_zombie: bool,
    /// Clock ticks since the host's start.
    started: u64,
}

/// Reads `/proc/<pid>/stat`; the program's name in it stands in parentheses and may contain anything.
fn process(pid: u32) -> Option<Process> {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(e) if e.kind() == ErrorKind::NotFound => return None,
        read => read.ok()?,
    };
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?;
    // The state is field 3, the start field 22.
    Some(Process { is_zombie: matches!(state, "Z" | "X"), started: fields.nth(18)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_lives_until_it_ends_even_if_it_is_a_zombie() {
        assert_eq!(Owner::this_process().liveness(), Liveness::Alive);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let owner = Owner::of_test(child.id());
        assert_eq!(owner.liveness(), Liveness::Alive);
        child.kill().unwrap();
        while process(child.id()).is_some_and(|process| !process.is_zombie) {
            std::thread::yield_now();
        }
        assert_eq!(owner.liveness(), Liveness::Dead, "a zombie");
        child.wait().unwrap();
        assert_eq!(owner.liveness(), Liveness::Dead, "nobody has that number");
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let own = Owner::this_process();
        let earlier = Owner { started: own.started.map(|started| started - 1), ..own };
        assert_eq!(earlier.liveness(), Liveness::Dead);
    }

    #[test]
    fn the_same_number_on_a_machine_of_the_same_snapshot_is_another_process() {
        let own = Owner::this_process();
        let copy = Owner { drawn: Some("elsewhere".into()), ..own.clone() };
        assert_ne!(copy, own);
        assert_eq!(copy.liveness(), Liveness::Unknown);
        assert_eq!(Owner::this_process(), own, "drawn once");
    }

    #[test]
    fn a_process_elsewhere_cannot_be_checked() {
        let own = Owner::this_process();
        let place = Some(("another boot".to_owned(), "pid:[1]".to_owned()));
        assert_eq!(Owner { place, ..own.clone() }.liveness(), Liveness::Unknown);
        assert_eq!(Owner { place: None, ..own }.liveness(), Liveness::Unknown);
    }
}
