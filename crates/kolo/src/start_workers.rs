//! Starts the running command again as each of its workers.

use std::ffi::OsString;

use kolo::Failure;
use kolo_comm::env;
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

/// Refuses `--nproc` if the environment makes this process the only worker of a job, regardless of the
/// option. Warns if the option is not given.
pub(crate) fn check_lone_worker(nproc: Option<usize>) -> Result<(), Failure> {
    // Kolo's launcher and torchrun also set the job's name; with them a single worker is intended.
    let by_hand = std::env::var_os(env::RUN_ID).is_none();
    let alone = std::env::var(env::WORLD_SIZE).is_ok_and(|size| size == "1");
    if !by_hand || !alone {
        return check_started(nproc);
    }
    let so = "RANK and WORLD_SIZE=1 in the environment make this process the only worker";
    match nproc {
        Some(1) => Ok(()),
        Some(nproc) => Err(Failure::input(format!(
            "--nproc {nproc}: {so}; unset RANK and WORLD_SIZE to start {nproc}, or leave out --nproc"
        ))),
        None => {
            log::warn!("{so}; unset RANK and WORLD_SIZE to have several started");
            Ok(())
        }
    }
}

/// Refuses an `--nproc` that differs from the numbers of workers that a launcher has started, on this node
/// and in all, with and without servers.
fn check_started(nproc: Option<usize>) -> Result<(), Failure> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    // Ranks of nodes that come later are above WORLD_SIZE, which is that of the job's start.
    let (Some(nproc), Some(all @ 1..)) = (nproc, number(env::WORLD_SIZE)) else { return Ok(()) };
    let here = number(env::LOCAL_WORLD_SIZE).unwrap_or(all);
    let servers = env::servers()?;
    let workers = [here, all, all.saturating_sub(servers), here.saturating_sub(servers * here / all)];
    if workers.contains(&nproc) {
        return Ok(());
    }
    Err(Failure::input(format!(
        "--nproc {nproc}: this process is one of {here} workers that a launcher has started; give the number to the \
         launcher, and leave it out here"
    )))
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
