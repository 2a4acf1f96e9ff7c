//! Starts the running command again as each of its workers.

use std::ffi::OsString;

use kolo::Failure;
use kolo_launch::{Bind, Messages, Output, Signals, unused_master};

use crate::options::Elastic;

/// Runs this command again as `nproc` workers and waits for them. Only rank 0 prints text for the user.
/// `signals`: those that have been caught while the job was prepared.
pub(crate) fn start_workers(
    nproc: usize,
    master_port: Option<u16>,
    env: Vec<(String, OsString)>,
    elastic: &Elastic,
    bind: Bind,
    messages: Messages,
    signals: Option<Signals>,
) -> Result<(), Failure> {
    unused_master(|name| std::env::var(name).ok()).iter().for_each(|words| log::warn!("{words}"));
    let program =
        std::env::current_exe().map_err(|e| Failure::work(format!("cannot find this program: {e}")))?;
    let command = std::iter::once(program.into_os_string()).chain(std::env::args_os().skip(1));
    let mut job = kolo_launch::Job::new(command, nproc);
    job.master_port = master_port;
    job.env = env;
    let is_limited = kolo_values::address_space::limit().is_some();
    for (name, value) in ALLOCATOR.into_iter().chain(SMALL_ARENAS.into_iter().filter(|_| is_limited)) {
        if std::env::var_os(name).is_none() {
            job.env.push((name.into(), value.into()));
        }
    }
    job.output = match messages {
        Messages::Text => Output::RankZero,
        // A program parses the output, so lines of two ranks must not mix.
        Messages::Json => Output::Prefixed,
    };
    (job.messages, job.bind) = (messages, bind);
    elastic.apply(&mut job);
    Ok(kolo_launch::run_caught(&job, signals)?)
}

/// Allocator settings of the workers. Training allocates the same tensors in every step. If a worker returns
/// freed pages to the system, it gets them back cleared, page by page, which costs about a tenth of a step on
/// small machines. So mimalloc keeps them for 24 days, in large pages where possible. With -1 it would keep
/// them also where the start of a training gives them back (`kolo_values::freed_memory`).
const ALLOCATOR: [(&str, &str); 2] =
    [("MIMALLOC_PURGE_DELAY", "2147483647"), ("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1")];

/// Sizes of the runs of addresses that mimalloc reserves, and of the largest tensors in them, in KiB. By
/// default it reserves 1 GiB at a time, and more than it needs for each large tensor, which a limit of
/// addresses (`ulimit -v`) may not leave.
const SMALL_ARENAS: [(&str, &str); 2] =
    [("MIMALLOC_ARENA_RESERVE", "65536"), ("MIMALLOC_ARENA_MAX_OBJECT_SIZE", "4096")];
