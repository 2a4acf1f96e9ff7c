//! Waits for the workers and decides in which order a job ends.
//!
//! The launcher sleeps until a worker ends, a signal comes, or a phase is over:
//!
//! | phase | begins | ends |
//! |---|---|---|
//! | running | | with the last worker, or the first failure |
//! | settling | at the first failure | after [`SETTLING`], or with the last worker: victims say what they saw |
//! | asked | with SIGTERM to all, or the launcher's own signal | after the job's grace, or with the last worker |
//! | killed | with SIGKILL to all | after [`KILLED`], or with the last worker |
//!
//! With the default grace a job is over less than three seconds after its first failure if its workers ignore
//! SIGTERM, and less than five if even the kernel does not let go of them.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::error::LaunchError;
use crate::signals::Signals;
use crate::workers::Workers;

/// How long the victims of a failure may take to notice and report it. Long enough for a busy machine, short
/// enough not to be felt.
const SETTLING: Duration = Duration::from_millis(750);
/// How long killed workers may take to be gone. They take longer only while the kernel holds on to them.
const KILLED: Duration = Duration::from_secs(1);
/// How long a running job is not looked at if nothing happens: members may hang, or be due to be replaced.
const LOOK: Duration = Duration::from_millis(100);
/// A year is as good as for ever, and still fits the clock.
const LONGEST_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Clone, Copy)]
enum Phase {
    Running,
    Settling { until: Instant },
    Asked { until: Instant },
    Killed { until: Instant },
}

impl Phase {
    fn until(self) -> Option<Instant> {
        match self {
            Phase::Running => None,
            Phase::Settling { until } | Phase::Asked { until } | Phase::Killed { until } => Some(until),
        }
    }
}

/// `survive` hears who has ended, and whether the job goes on: then what it does not take care of among failures ends the job. It
/// says whether the launcher goes on even when no worker is left.
///
/// Returns when all workers have ended, or nothing more can be done about those that have not. Gives the
/// signal by which the launcher was asked to end, if it was.
pub(crate) fn watch(
    workers: &mut Workers,
    signals: &mut Signals,
    grace: Duration,
    mut survive: impl FnMut(&mut Workers, bool) -> Result<bool, LaunchError>,
) -> Result<Option<i32>, LaunchError> {
    let mut phase = Phase::Running;
    let mut interrupted = None;
    loop {
        workers.collect()?;
        let goes_on = matches!(phase, Phase::Running);
        let stays = survive(workers, goes_on)? && goes_on;
        if workers.all_ended() && !stays {
            return Ok(interrupted);
        }
        for signal in signals.pending() {
            phase = match phase {
                Phase::Running | Phase::Settling { .. } => {
                    interrupted = Some(signal);
                    ask(workers, Signal::from_named_raw(signal).unwrap_or(Signal::TERM), grace)?
                }
                // Who asks twice does not want to wait.
                Phase::Asked { .. } => kill(workers),
                Phase::Killed { .. } => phase,
            };
        }
        let now = Instant::now();
        phase = match phase {
            Phase::Running if workers.any_failed() => Phase::Settling { until: now + SETTLING },
            Phase::Settling { until } if now >= until => ask(workers, Signal::TERM, grace)?,
            Phase::Asked { until } if now >= until => kill(workers),
            Phase::Killed { until } if now >= until => return Ok(interrupted),
            phase => phase,
        };
        let until = match phase {
            Phase::Running => Some(now + LOOK),
            _ => phase.until(),
        };
        if stays || !workers.all_ended() {
            sleep(workers, signals, until)?;
        }
    }
}

fn ask(workers: &mut Workers, signal: Signal, grace: Duration) -> Result<Phase, LaunchError> {
    workers.ask(signal)?;
    Ok(Phase::Asked { until: Instant::now() + grace.min(LONGEST_GRACE) })
}

fn kill(workers: &Workers) -> Phase {
    workers.kill();
    Phase::Killed { until: Instant::now() + KILLED }
}

/// Until something happens.
fn sleep(workers: &Workers, signals: &Signals, until: Option<Instant>) -> Result<(), LaunchError> {
    let timeout = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    let signal = PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN);
    let ends = workers.pidfds().map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = std::iter::once(signal).chain(ends).collect();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(cause) => Err(LaunchError::system("cannot wait for the workers", cause)),
    }
}
