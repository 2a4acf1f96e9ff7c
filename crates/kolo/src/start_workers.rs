//! A command that works on several workers starts itself as each of them.

use std::ffi::OsString;

use kolo_comm::env;
use kolo_launch::{Messages, Output};

use crate::options::Elastic;
use kolo::Failure;

/// Runs this very command again as `nproc` workers, of which rank 0 speaks to the user, and waits for them.
pub(crate) fn start_workers(
    nproc: usize,
    master_port: Option<u16>,
    env: Vec<(String, OsString)>,
    elastic: &Elastic,
    messages: Messages,
) -> Result<(), Failure> {
    let program =
        std::env::current_exe().map_err(|e| Failure::work(format!("cannot find this program: {e}")))?;
    let command = std::iter::once(program.into_os_string()).chain(std::env::args_os().skip(1));
    let mut job = kolo_launch::Job::new(command, nproc);
    job.master_port = master_port;
    job.env = env;
    for (name, value) in ALLOCATOR {
        if std::env::var_os(name).is_none() {
            job.env.push((name.into(), value.into()));
        }
    }
    job.output = match messages {
        Messages::Text => Output::RankZero,
        // What a program reads must not have one rank's line within another's.
        Messages::Json => Output::Prefixed,
    };
    job.messages = messages;
    elastic.apply(&mut job);
    Ok(kolo_launch::run(&job)?)
}

/// Refuses `--nproc` where the environment says that this process is the only worker of a job, which it would
/// be whatever the option says; warns where the option is not given.
pub(crate) fn check_lone_worker(nproc: Option<usize>) -> Result<(), Failure> {
    // Kolo's launcher and torchrun set the job's name as well, and mean it.
    let by_hand = std::env::var_os(env::RUN_ID).is_none();
    let alone = std::env::var(env::WORLD_SIZE).is_ok_and(|size| size == "1");
    if !by_hand || !alone {
        return Ok(());
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

/// Training allocates the same tensors in every step. A worker that gives freed pages back to the system gets
/// them anew, cleared, page by page: about a tenth of a step on small machines. So mimalloc keeps them, in
/// large pages where it may.
const ALLOCATOR: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "-1"), ("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1")];
