//! Supervises the workers, and decides the order of steps at the end of a job.
//!
//! The launcher sleeps until a worker ends, a signal arrives, or a phase ends:
//!
//! | phase | begins | ends |
//! |---|---|---|
//! | running | | with the last worker, or the first failure |
//! | failing | at the first failure | after [`FAILING`] (for error files), or with the last worker |
//! | leaving | when a worker has ended as it was asked to | after the grace, a failure or the last worker |
//! | terminating | with SIGTERM to all, or the launcher's signal | after the grace, or with the last
//! worker; later while one saves |
//! | killing | with SIGKILL to all | after [`KILLING`], or with the last worker |
//!
//! With the default grace, a job that is not elastic ends less than three seconds after its first failure if
//! its workers ignore SIGTERM, and less than five if even the kernel does not release them.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use signal_hook::consts::signal::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;

use kolo_comm::schedule::words::counted;
use kolo_elastic::{EndCause, StopRequest, StopRequests};

use crate::error::LaunchError;
use crate::job::{Job, Messages};
use crate::saving::Savers;
use crate::signals::Signals;
use crate::worker_exit::{ExitStatus, TERMINATED};
use crate::workers::Workers;

/// Time for the victims of a failure to notice and report it: enough on a busy machine, barely noticeable.
const FAILING: Duration = Duration::from_millis(750);
/// Time for killed workers to disappear. They take longer only if the kernel does not release them.
const KILLING: Duration = Duration::from_secs(1);
/// Maximum sleep if nothing happens: members may hang, also while they save the run, or a replacement may be
/// due.
const PERIOD: Duration = Duration::from_millis(100);
/// Default time for workers to end on request. Job managers usually wait as long, because a training run
/// finishes its step and writes a checkpoint.
const GRACE: Duration = Duration::from_secs(30);
/// The same after a failure of a program that is not elastic, whose workers wait for a dead one.
const GRACE_AFTER_FAILURE: Duration = Duration::from_secs(2);
/// Time between two looks at workers that save the run when the grace is over.
const SAVING: Duration = Duration::from_millis(200);
/// Maximum grace: a year is practically unlimited, and still fits the clock.
const MAX_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Clone, Copy)]
enum Phase {
    Running,
    Failing { until: Instant },
    Leaving { until: Instant },
    Terminating { until: Instant },
    Killing { until: Instant },
}

impl Phase {
    fn until(self) -> Option<Instant> {
        match self {
            Phase::Running => None,
            Phase::Failing { until }
            | Phase::Leaving { until }
            | Phase::Terminating { until }
            | Phase::Killing { until } => Some(until),
        }
    }

    /// Returns the cause for which the job ends; `None` while it continues. `interrupted`: a signal asked the
    /// launcher to end.
    fn end_cause(self, interrupted: bool) -> Option<EndCause> {
        match self {
            Phase::Running => None,
            Phase::Leaving { .. } => Some(EndCause::Asked),
            _ if interrupted => Some(EndCause::Asked),
            Phase::Failing { .. } | Phase::Terminating { .. } | Phase::Killing { .. } => {
                Some(EndCause::Failed)
            }
        }
    }
}

/// Returns the phase of a job in which workers have failed. If all of them have ended because they were asked
/// to, by a signal to the workers or a time limit, the others are about to end as well, and rank 0 may still
/// write the checkpoint that has all of their work.
fn after_failures(phase: Phase, mut failures: impl Iterator<Item = ExitStatus>, grace: Duration) -> Phase {
    let now = Instant::now();
    let Some(first) = failures.next() else { return phase };
    let only_asked = first == TERMINATED && failures.all(|status| status == TERMINATED);
    match phase {
        Phase::Running if only_asked => Phase::Leaving { until: now + grace.min(MAX_GRACE) },
        Phase::Leaving { .. } if only_asked => phase,
        Phase::Running | Phase::Leaving { .. } => Phase::Failing { until: now + FAILING },
        phase => phase,
    }
}

/// Waits until all workers have ended, or those that have not cannot be ended. Returns the signal that asked
/// the launcher to end, if any.
///
/// Calls `recover` whenever something may have changed, with the cause if the job ends. Otherwise it may
/// handle failures; those that it does not handle end the job.
pub(crate) fn supervise(
    job: &Job,
    workers: &mut Workers,
    signals: &mut Signals,
    mut recover: impl FnMut(&mut Workers, Option<EndCause>) -> Result<Recovered, LaunchError>,
) -> Result<Option<i32>, LaunchError> {
    let mut phase = Phase::Running;
    let mut interrupted = None;
    let mut requests = StopRequests::default();
    let (mut savers, mut has_told) = (Savers::default(), false);
    loop {
        // Before the exits: the job may have survived a worker that died before a signal.
        let pending: Vec<i32> = signals.pending().collect();
        workers.collect()?;
        let end = phase.end_cause(interrupted.is_some());
        let Recovered { needs_launcher, has_begun } = recover(workers, end)?;
        let stays = needs_launcher && end.is_none();
        let grace = job.grace.unwrap_or(GRACE);
        let grace_after_failure = match has_begun {
            true => grace,
            false => job.grace.unwrap_or(GRACE_AFTER_FAILURE),
        };
        if workers.all_ended() && !stays {
            return Ok(interrupted);
        }
        for signal in pending {
            if signal == SIGTSTP {
                stop(workers);
                continue;
            }
            let request = requests.count(signal, Instant::now());
            phase = match phase {
                Phase::Running | Phase::Failing { .. } | Phase::Leaving { .. } => {
                    // Workers that have ended were not interrupted.
                    interrupted = Some(signal).filter(|_| !workers.all_ended());
                    terminate(workers, Signal::from_named_raw(signal).unwrap_or(Signal::TERM), grace)
                }
                Phase::Terminating { .. } if request == StopRequest::Again => phase,
                // A user who signals twice, or during the end of a failed job, does not want to wait.
                Phase::Terminating { .. } => kill(workers),
                Phase::Killing { .. } => phase,
            };
        }
        phase = after_failures(phase, workers.failures(), grace);
        let now = Instant::now();
        phase = match phase {
            Phase::Failing { until } | Phase::Leaving { until } if now >= until => {
                terminate(workers, Signal::TERM, grace_after_failure)
            }
            Phase::Terminating { until } if now >= until => {
                // A limit that the user has set counts.
                let saving = if job.grace.is_none() { workers.saving(&mut savers, now) } else { 0 };
                if saving > 0 {
                    if !std::mem::replace(&mut has_told, true) {
                        report_saving(saving, grace, job.messages);
                    }
                    phase = Phase::Terminating { until: now + SAVING };
                    continue;
                }
                if interrupted.is_some() {
                    report_killed(workers, grace, job.messages);
                }
                kill(workers)
            }
            Phase::Killing { until } if now >= until => return Ok(interrupted),
            phase => phase,
        };
        if stays || !workers.all_ended() {
            let until = phase.until().map_or(now + PERIOD, |until| until.min(now + PERIOD));
            sleep(workers, signals, until)?;
        }
    }
}

/// Result of the failure handling for the supervisor.
pub(crate) struct Recovered {
    /// True if the launcher must stay even without workers.
    pub needs_launcher: bool,
    /// True if workers of an elastic job may have state to save.
    pub has_begun: bool,
}

/// Handles Ctrl-Z: the workers stop, then this process, and all continue together.
fn stop(workers: &Workers) {
    workers.signal(Signal::TSTP);
    // Returns after a SIGCONT.
    let _ = emulate_default_handler(SIGTSTP);
    workers.signal(Signal::CONT);
}

/// Prints the reason to wait longer for workers.
fn report_saving(count: usize, grace: Duration, messages: Messages) {
    messages.print(&format!(
        "Kolo waits for {} that {} the run, longer than the {} s for its end; another signal ends it at once",
        counted(count, "worker"),
        if count == 1 { "saves" } else { "save" },
        grace.as_secs_f64()
    ));
}

/// Prints the consequences of killing workers that have not ended in time.
fn report_killed(workers: &Workers, grace: Duration, messages: Messages) {
    let left = workers.list.iter().filter(|worker| worker.status().is_none()).count();
    messages.print(&format!(
        "Kolo kills {}: not ended within {} s; what has been done since a checkpoint, if there is one, is lost; \
         --grace gives longer",
        counted(left, "worker"),
        grace.as_secs_f64()
    ));
}

fn terminate(workers: &mut Workers, signal: Signal, grace: Duration) -> Phase {
    workers.terminate(signal);
    Phase::Terminating { until: Instant::now() + grace.min(MAX_GRACE) }
}

fn kill(workers: &Workers) -> Phase {
    workers.kill();
    Phase::Killing { until: Instant::now() + KILLING }
}

/// Sleeps until a worker ends, a signal arrives, or `until`.
fn sleep(workers: &Workers, signals: &Signals, until: Instant) -> Result<(), LaunchError> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let signal = PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN);
    let ends = workers.pidfds().map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = std::iter::once(signal).chain(ends).collect();
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(cause) => Err(LaunchError::system("cannot wait for the workers", cause)),
    }
}

#[cfg(test)]
mod tests {
    use kolo_elastic::MemberRanks;
    use rustix::process::{getpid, kill_process};

    use super::*;
    use crate::environment::Rendezvous;
    use crate::token::TokenSource;

    /// The others regroup without the dead worker as soon as they know. A launcher that had found its end in
    /// the moment of a signal told them when the next worker ended.
    #[test]
    fn a_death_in_the_moment_of_a_signal_is_reported_while_the_others_end() {
        let mut job = Job::new(["sh", "-c", "trap '' TERM; while sleep 0.1; do :; done"], 2);
        job.grace = Some(Duration::from_secs(60));
        let token = TokenSource::Inherited;
        let (run_id, coordinator) = (String::new(), None);
        let rendezvous =
            Rendezvous { port: 1, run_id, token, coordinator, group_restarts: 0, most_workers: 2 };
        let mut signals = Signals::catch(&[]).unwrap();
        let mut workers = Workers::start(&job, &rendezvous, MemberRanks::default()).unwrap();
        let (mut calls, mut first_seen, began) = (0, None, Instant::now());
        let ended_by = supervise(&job, &mut workers, &mut signals, |workers, end| {
            calls += 1;
            if calls == 1 {
                kill_process(getpid(), Signal::TERM).unwrap();
                kill_process(workers.list[1].pid, Signal::KILL).unwrap();
                let mut dead = [PollFd::new(&workers.list[1].pidfd, PollFlags::IN)];
                poll(&mut dead, None).unwrap();
            }
            if workers.list[1].exit.is_some() {
                first_seen.get_or_insert(end);
            }
            if first_seen.is_some() && end.is_some() {
                kill_process(workers.list[0].pid, Signal::KILL).unwrap();
            }
            Ok(Recovered { needs_launcher: false, has_begun: true })
        });
        assert_eq!(ended_by.unwrap(), Some(15));
        assert!(began.elapsed() < Duration::from_secs(50), "the time for the end was over before");
        assert_eq!(first_seen, Some(None), "the job could have survived it");
    }

    #[test]
    fn workers_that_were_asked_to_end_leave_the_others_time() {
        let grace = Duration::from_secs(30);
        let left = |phase: Phase| phase.until().unwrap().saturating_duration_since(Instant::now());
        let leaving = after_failures(Phase::Running, [TERMINATED].into_iter(), grace);
        assert!(matches!(leaving, Phase::Leaving { .. }) && left(leaving) > FAILING);
        let both = after_failures(leaving, [TERMINATED; 2].into_iter(), grace);
        assert_eq!(both.until(), leaving.until(), "the time is counted from the first one");
        // A failure of its own among them.
        let failing = after_failures(leaving, [TERMINATED, ExitStatus::Code(1)].into_iter(), grace);
        assert!(matches!(failing, Phase::Failing { .. }) && left(failing) <= FAILING);
        let first = after_failures(Phase::Running, [ExitStatus::Signal(9), TERMINATED].into_iter(), grace);
        assert!(matches!(first, Phase::Failing { .. }));
        assert!(matches!(after_failures(Phase::Running, [].into_iter(), grace), Phase::Running));
    }
}
