//! Ends a child with its parent, however that ends. This is the only module of the crate with `unsafe`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Signal, getpid, getppid, set_parent_process_death_signal, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::open_files;
use crate::reaper::ReaperSocket;

/// Makes the child of `command` die with SIGKILL when this process dies.
///
/// The kernel's parent is the *thread* that spawns, so that thread must live as long as the child should.
pub fn die_with_parent(command: &mut Command) {
    before_exec(command, |_| {});
}

/// Applies [`die_with_parent`] to a worker, and registers its process group with the reaper before the
/// worker can have children. Binds it to `cores`, if there are some, before it can have threads. Restores the
/// limit of open files if the launcher has raised its own.
pub(crate) fn die_with_launcher(command: &mut Command, reaper: Option<ReaperSocket>, cores: Option<CpuSet>) {
    let files = open_files::of_workers();
    before_exec(command, move |worker| {
        if let Some(files) = files {
            // A limit within the hard limit is not refused.
            let _ = setrlimit(Resource::Nofile, files);
        }
        if let Some(cores) = &cores {
            // Refused only if none of the cores is there any more; then the scheduler chooses.
            let _ = sched_setaffinity(None, cores);
        }
        if let Some(reaper) = &reaper {
            reaper.register(worker);
        }
    });
}

/// Requests the parent's death signal in the child, then runs `then` between fork and exec.
fn before_exec(command: &mut Command, then: impl Fn(Pid) + Send + Sync + 'static) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Without this check, the child would miss the death of a parent before the line above.
        if getppid() != Some(parent) {
            return Err(Errno::SRCH.into());
        }
        then(getpid());
        Ok(())
    };
    // SAFETY: between fork and exec, only code that is safe in a signal handler may run, because other
    // threads may have held any lock at the fork. `ask` and both callers' `then` make a few system calls and
    // write a number into an array on the stack. They take no lock, and neither allocate nor free: an
    // `Errno` becomes an `io::Error` without a box.
    unsafe { command.pre_exec(ask) };
}
