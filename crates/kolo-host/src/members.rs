//! Workers that have the memory mapped. A worker that the others go on without may still be alive, for
//! example because it was stopped for too long. It would write to the memory when it wakes up, so they end
//! it first.

use std::sync::atomic::Ordering;

use kolo_comm::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::memory::HostMemory;
use crate::places::{MOST_WORKERS, word};

/// Seconds within which the system ends a process that was killed.
const PATIENCE: i64 = 20;

/// A process, by its number and the time at which it began: numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pid: u32,
    began: u64,
}

impl Member {
    /// This process.
    pub fn here() -> Self {
        let pid = std::process::id();
        Member { pid, began: began(pid).unwrap_or(0) }
    }
}

impl HostMemory {
    /// Adds this process to the members.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn enter(&self) -> Result<(), Error> {
        let Member { pid, began } = Member::here();
        let is_there = |slot: &usize| self.member(*slot) == Some(Member { pid, began });
        if (0..MOST_WORKERS).any(|slot| is_there(&slot)) {
            return Ok(());
        }
        for slot in 0..MOST_WORKERS {
            let (first, second) = self.member_words(slot);
            let entered = first.compare_exchange(0, u64::from(pid), Ordering::AcqRel, Ordering::Acquire);
            if entered.is_ok() {
                second.store(began, Ordering::Release);
                return Ok(());
            }
        }
        let problem = format!("more than {MOST_WORKERS} workers have mapped it");
        Err(Error::system("cannot share the memory of this host", problem))
    }

    /// Removes this process from the members: it will not write any more.
    pub fn leave(&self) {
        (0..MOST_WORKERS)
            .filter(|slot| self.member(*slot) == Some(Member::here()))
            .for_each(|slot| self.remove(slot));
    }

    /// Ends members whose processes are not `living`, if they are still there, and removes them. When it
    /// returns, nobody but the living ones writes to the memory.
    ///
    /// # Errors
    ///
    /// The system does not end a process.
    pub fn end_others(&self, living: &[u32]) -> Result<(), Error> {
        for slot in 0..MOST_WORKERS {
            let Some(member) = self.member(slot).filter(|member| !living.contains(&member.pid)) else {
                continue;
            };
            end(member).map_err(|cause| {
                let what =
                    format!("process {} has a part of this job's memory, and cannot be ended", member.pid);
                Error::io(what, cause.into())
            })?;
            self.remove(slot);
        }
        Ok(())
    }

    fn member(&self, slot: usize) -> Option<Member> {
        let (pid, began) = self.member_words(slot);
        let pid = u32::try_from(pid.load(Ordering::Acquire)).ok().filter(|pid| *pid > 0)?;
        Some(Member { pid, began: began.load(Ordering::Acquire) })
    }

    fn remove(&self, slot: usize) {
        let (pid, began) = self.member_words(slot);
        began.store(0, Ordering::Release);
        pid.store(0, Ordering::Release);
    }

    fn member_words(&self, slot: usize) -> (&std::sync::atomic::AtomicU64, &std::sync::atomic::AtomicU64) {
        let first = word::MEMBERS + 2 * slot;
        (self.word(first), self.word(first + 1))
    }
}

/// Ends a process and waits until it is gone.
fn end(member: Member) -> Result<(), Errno> {
    let Some(pid) = i32::try_from(member.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        opened => opened?,
    };
    // With the descriptor the number cannot come to mean another process any more.
    if began(member.pid) != Some(member.began) {
        return Ok(());
    }
    match pidfd_send_signal(&process, Signal::KILL) {
        Err(Errno::SRCH) => return Ok(()),
        sent => sent?,
    }
    let limit = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit))? {
        0 => Err(Errno::TIMEDOUT),
        _ => Ok(()),
    }
}

/// Returns the time at which a living process began, in the system's ticks (field 22 of proc(5)'s stat).
fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, which may have any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn write(memory: &HostMemory, slot: usize, member: Member) {
        let (pid, began) = memory.member_words(slot);
        began.store(member.began, Ordering::Release);
        pid.store(u64::from(member.pid), Ordering::Release);
    }

    #[test]
    fn only_members_that_are_left_behind_are_ended() {
        let memory = HostMemory::create(vec![0..1, 1..3], 0).unwrap();
        let sleeper = || Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap();
        let (mut stays, mut goes, mut other) = (sleeper(), sleeper(), sleeper());
        let of = |pid| Member { pid, began: began(pid).unwrap() };
        memory.enter().unwrap();
        memory.enter().unwrap();
        write(&memory, 7, of(stays.id()));
        write(&memory, 9, of(goes.id()));
        // The number of a process that ended long ago, which is another one's now.
        write(&memory, 11, Member { pid: other.id(), began: 1 });
        memory.end_others(&[std::process::id(), stays.id()]).unwrap();
        assert!(!goes.wait().unwrap().success());
        for alive in [&mut stays, &mut other] {
            assert!(alive.try_wait().unwrap().is_none());
            alive.kill().unwrap();
            alive.wait().unwrap();
        }
        let members = |memory: &HostMemory| (0..MOST_WORKERS).filter_map(|slot| memory.member(slot)).count();
        assert_eq!(members(&memory), 2);
        memory.leave();
        // The one that stays has ended by itself by now.
        memory.end_others(&[]).unwrap();
        assert_eq!(members(&memory), 0);
    }
}
