//! Supervises the workers, and decides in which order a job ends.
//!
//! The launcher sleeps until a worker ends, a signal comes, or a phase is over:
//!
//! | phase | begins | ends |
//! |---|---|---|
//! | running | | with the last worker, or the first failure |
//! | failing | at the first failure | after [`FAILING`] (for error files), or with the last worker |
//! | terminating | with SIGTERM to all, or the launcher's signal | after the grace, or with the last worker |
//! | killing | with SIGKILL to all | after [`KILLING`], or with the last worker |
//!
//! With the default grace a job that is not elastic is over less than three seconds after its first failure
//! if its workers ignore SIGTERM, and less than five if even the kernel does not let go of them.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use signal_hook::consts::signal::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;

use kolo_elastic::{StopRequest, StopRequests};

use crate::error::LaunchError;
use crate::job::{Job, Messages};
use crate::signals::Signals;
use crate::workers::Workers;

/// How long the victims of a failure may take to notice and report it. Long enough for a busy machine, short
/// enough not to be felt.
const FAILING: Duration = Duration::from_millis(750);
/// How long killed workers may take to be gone. They take longer only while the kernel holds on to them.
const KILLING: Duration = Duration::from_secs(1);
/// How long the launcher sleeps if nothing happens: members may hang, or be due to be replaced.
const PERIOD: Duration = Duration::from_millis(100);
/// How long workers that are asked to end may take, unless the job says it: as job managers usually wait, for
/// a training finishes its step and writes a checkpoint.
const GRACE: Duration = Duration::from_secs(30);
/// The same after a failure, where a program is not elastic: its workers wait for one that is gone.
const GRACE_AFTER_FAILURE: Duration = Duration::from_secs(2);
/// The longest grace: a year is as good as for ever, and still fits the clock.
const MAX_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Clone, Copy)]
enum Phase {
    Running,
    Failing { until: Instant },
    Terminating { until: Instant },
    Killing { until: Instant },
}

impl Phase {
    fn until(self) -> Option<Instant> {
        match self {
            Phase::Running => None,
            Phase::Failing { until } | Phase::Terminating { until } | Phase::Killing { until } => Some(until),
        }
    }
}

/// Waits until all workers have ended, or nothing more can be done about those that have not. Gives the
/// signal by which the launcher was asked to end, if it was.
///
/// `recover` is called whenever something may have changed, with whether the job goes on: then it may take
/// care of failures, and those that it leaves end the job.
pub(crate) fn supervise(
    job: &Job,
    workers: &mut Workers,
    signals: &mut Signals,
    mut recover: impl FnMut(&mut Workers, bool) -> Result<Recovered, LaunchError>,
) -> Result<Option<i32>, LaunchError> {
    let mut phase = Phase::Running;
    let mut interrupted = None;
    let mut requests = StopRequests::default();
    loop {
        workers.collect()?;
        let goes_on = matches!(phase, Phase::Running);
        let Recovered { needs_launcher, is_elastic } = recover(workers, goes_on)?;
        let stays = needs_launcher && goes_on;
        let grace = job.grace.unwrap_or(GRACE);
        let grace_after_failure = match is_elastic {
            true => grace,
            false => job.grace.unwrap_or(GRACE_AFTER_FAILURE),
        };
        if workers.all_ended() && !stays {
            return Ok(interrupted);
        }
        for signal in signals.pending() {
            if signal == SIGTSTP {
                stop(workers);
                continue;
            }
            let request = requests.count(signal, Instant::now());
            phase = match phase {
                Phase::Running | Phase::Failing { .. } => {
                    interrupted = Some(signal);
                    terminate(workers, Signal::from_named_raw(signal).unwrap_or(Signal::TERM), grace)?
                }
                Phase::Terminating { .. } if request == StopRequest::Again => phase,
                // A user who signals twice, or while a failed job ends, does not want to wait.
                Phase::Terminating { .. } => kill(workers),
                Phase::Killing { .. } => phase,
            };
        }
        let now = Instant::now();
        phase = match phase {
            Phase::Running if workers.any_failed() => Phase::Failing { until: now + FAILING },
            Phase::Failing { until } if now >= until => {
                terminate(workers, Signal::TERM, grace_after_failure)?
            }
            Phase::Terminating { until } if now >= until => {
                if interrupted.is_some() {
                    tell_killed(workers, grace, job.messages);
                }
                kill(workers)
            }
            Phase::Killing { until } if now >= until => return Ok(interrupted),
            phase => phase,
        };
        let until = match phase {
            Phase::Running => Some(now + PERIOD),
            _ => phase.until(),
        };
        if stays || !workers.all_ended() {
            sleep(workers, signals, until)?;
        }
    }
}

/// What the supervisor has to know of those who take care of failures.
pub(crate) struct Recovered {
    /// Whether the launcher goes on even when no worker is left.
    pub needs_launcher: bool,
    /// Whether workers have formed a group of an elastic job.
    pub is_elastic: bool,
}

/// Ctrl-Z: the workers stop, then this process, and all go on together.
fn stop(workers: &Workers) {
    workers.signal(Signal::TSTP);
    // Returns when somebody has sent SIGCONT.
    let _ = emulate_default_handler(SIGTSTP);
    workers.signal(Signal::CONT);
}

/// Says what is lost with workers that have not ended in time.
fn tell_killed(workers: &Workers, grace: Duration, messages: Messages) {
    let left = workers.list.iter().filter(|worker| worker.status().is_none()).count();
    messages.say(&format!(
        "{left} workers have not ended within {} s and are killed: what they have done since their last checkpoint is \
         lost; --grace gives them longer",
        grace.as_secs_f64()
    ));
}

fn terminate(workers: &mut Workers, signal: Signal, grace: Duration) -> Result<Phase, LaunchError> {
    workers.terminate(signal)?;
    Ok(Phase::Terminating { until: Instant::now() + grace.min(MAX_GRACE) })
}

fn kill(workers: &Workers) -> Phase {
    workers.kill();
    Phase::Killing { until: Instant::now() + KILLING }
}

/// Sleeps until a worker ends, a signal comes, or `until`.
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
