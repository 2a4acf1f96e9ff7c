//! Number of workers of a process that a launcher has started, beside the number that its options ask for.

use kolo_comm::env;

use crate::Failure;

/// Refuses `--nproc` if the environment makes this process the only worker of a job, regardless of the
/// option. Warns if the option is not given.
///
/// # Errors
///
/// The number differs from that of the workers that have been started.
pub fn check_lone_worker(nproc: Option<usize>) -> Result<(), Failure> {
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
