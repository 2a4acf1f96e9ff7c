//! Makes a child end with its parent, however that ends: the one module of this crate that needs `unsafe`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Signal, getpid, getppid, set_parent_process_death_signal, setrlimit};

use crate::open_files;
use crate::reaper::ReaperSocket;

/// Makes the child of `command` die with SIGKILL when this process does.
///
/// To the kernel the parent is the *thread* that spawns: that thread must live as long as the child should.
pub fn die_with_parent(command: &mut Command) {
    before_exec(command, |_| {});
}

/// [`die_with_parent`] for a worker, which also registers the process group that it heads with the reaper
/// before it can have children of its own.
///
/// Where the launcher has raised its limit of open files, the worker gets back the one that was.
pub(crate) fn die_with_launcher(command: &mut Command, reaper: Option<ReaperSocket>) {
    let files = open_files::of_workers();
    before_exec(command, move |worker| {
        if let Some(files) = files {
            // A limit within the hard one is not refused.
            let _ = setrlimit(Resource::Nofile, files);
        }
        if let Some(reaper) = &reaper {
            reaper.register(worker);
        }
    });
}

/// Has the child ask for its parent's death signal, and then do what is safe between fork and exec.
fn before_exec(command: &mut Command, then: impl Fn(Pid) + Send + Sync + 'static) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before the line above would never be noticed.
        if getppid() != Some(parent) {
            return Err(Errno::SRCH.into());
        }
        then(getpid());
        Ok(())
    };
    // SAFETY: between fork and exec only what is safe in a signal handler may run, for other threads may
    // have held any lock at the fork. `ask` makes six system calls and writes a number into an array on the
    // stack, `then` of both callers above included. It takes no lock, and neither allocates nor frees: an
    // `Errno` becomes an `io::Error` unboxed.
    unsafe { command.pre_exec(ask) };
}
