//! A child that is killed by the kernel at the moment its launcher ends, however that ends.
//!
//! The one place of this crate that needs `unsafe`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the child of `command` die with SIGKILL when the launcher does.
///
/// To the kernel the parent is the *thread* that spawns: that thread must live as long as the child should.
pub(crate) fn die_with_parent(command: &mut Command) {
    let launcher = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A launcher that died before the line above would never be noticed.
        if getppid() == Some(launcher) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec only what is safe in a signal handler may run, for other threads may
    // have held any lock at the fork. `ask` makes two system calls, takes no lock, and neither allocates nor
    // frees: `Errno` becomes an `io::Error` without a box.
    unsafe { command.pre_exec(ask) };
}
