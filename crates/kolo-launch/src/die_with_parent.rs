//! Makes a child end with its launcher, however that ends: the one module of this crate that needs `unsafe`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::reaper::ReaperSocket;

/// Makes the child of `command` die with SIGKILL when the launcher does, and registers the process group that
/// it heads with the reaper before it can have children of its own.
///
/// To the kernel the parent is the *thread* that spawns: that thread must live as long as the child should.
pub(crate) fn die_with_parent(command: &mut Command, reaper: Option<ReaperSocket>) {
    let launcher = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A launcher that died before the line above would never be noticed.
        if getppid() != Some(launcher) {
            return Err(Errno::SRCH.into());
        }
        if let Some(reaper) = &reaper {
            reaper.register(getpid());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only what is safe in a signal handler may run, for other threads may
    // have held any lock at the fork. `ask` makes five system calls and writes a number into an array on the
    // stack. It takes no lock, and neither allocates nor frees: an `Errno` becomes an `io::Error` unboxed.
    unsafe { command.pre_exec(ask) };
}
