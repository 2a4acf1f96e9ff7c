//! Workers that have ended: decides if the job continues, which workers are replaced, and when the work is
//! done.
//!
//! Three tests find the end of the work, since each may succeed first. [`Elastic::workers_are_done`]: all
//! workers of this node have ended well, and no launcher may join any more.
//! [`Coordinator::is_finished`](kolo_elastic::Coordinator::is_finished): so has the last generation on all
//! nodes, and later failures are not replaced. [`Elastic::is_done_without`]: a worker was killed at the last
//! moment, but the job's result has been written.

use std::time::{Duration, Instant};

use kolo_comm::Rank;
use kolo_elastic::{EndCause, MemberExit, Obstacle, WRONG_INPUT, node_rank_of};

use super::Elastic;
use crate::error::LaunchError;
use crate::error_file::FailureKind;
use crate::worker_exit::{ExitStatus, TERMINATED};
use crate::worker_process::WorkerProcess;
use crate::workers::Workers;

/// Delay of a replacement after a worker's death. If a bug ends all workers at once, none is replaced.
const RESTART_DELAY: Duration = Duration::from_millis(500);
/// Delay of a retry after a failed start: missing descriptors, processes or memory may be free again.
const RETRY_DELAY: Duration = Duration::from_secs(2);

impl Elastic {
    /// Returns true if some worker has ended well, and all others have, too, or died and were survived.
    pub(super) fn workers_are_done(workers: &Workers) -> bool {
        workers.list.iter().any(has_ended_well)
            && workers.list.iter().all(|worker| worker.survived || has_ended_well(worker))
    }

    /// Reports exits to the coordinator, and decides if the job continues without those workers. `alive` is
    /// the number of remaining workers on all nodes.
    pub(super) fn report_exits(&mut self, workers: &mut Workers, alive: usize) {
        let formed = self.coordinator.generation() > 0;
        let mut too_few = None;
        for index in 0..workers.list.len() {
            let worker = &workers.list[index];
            let Some(status) = worker.status().filter(|_| !worker.reported) else { continue };
            let (name, done) = (workers.name(&worker.member), self.is_done_without(worker, workers));
            let worker = &mut workers.list[index];
            worker.reported = true;
            if status.failed() && !formed {
                // Before its exit is reported: the first generation must not begin without it.
                self.close(EndCause::Failed);
            }
            let kind = worker.failure_kind().filter(|_| status.failed());
            let ends_job = match kind {
                Some(FailureKind::StateLost | FailureKind::Diverged) => true,
                // A worker without a rank has trained nothing; the others do not need what it lacks.
                Some(FailureKind::WrongInput) => self.coordinator.ranks().last(&worker.member).is_some(),
                // At the start the user may still give it room.
                Some(FailureKind::NoRoom) => self.coordinator.generation() <= 1,
                Some(FailureKind::OtherWriter) | None => false,
            };
            if ends_job && !done && !self.coordinator.is_finished() {
                // Before its exit is reported: the others take no further part in a job that cannot go on.
                self.close(EndCause::Failed);
            }
            let how = match kind {
                Some(FailureKind::WrongInput) => format!("{status}, {WRONG_INPUT}"),
                _ => worker.how(status),
            };
            let exit = match status.failed() {
                true => match self.obstacle(worker, kind).filter(|_| !done) {
                    Some(obstacle) => MemberExit::CannotBegin { how, obstacle },
                    None => MemberExit::Failed(how),
                },
                // Others may wait for it while a group forms, and would until the launcher kills them.
                false if worker.broke_off => MemberExit::Failed(how),
                false => MemberExit::Clean,
            };
            self.coordinator.member_exited(&worker.member, &exit);
            // A worker that has left in good order is not replaced.
            let coming = self.due_restarts.len() + if status.failed() { self.restarts_left } else { 0 };
            let enough = alive > 0 && alive + coming >= self.min_members && status != TERMINATED;
            if formed && !enough {
                let cause = if status == TERMINATED { EndCause::Asked } else { EndCause::Failed };
                too_few.get_or_insert(cause);
            }
            if !status.failed() || !formed {
                continue;
            }
            // A replacement that arrives when the work is done is not needed, however it ends.
            let finished = self.coordinator.is_finished();
            if done {
                worker.survived = true;
                self.messages.print(&format!("{name} {status} when the work was done"));
            } else if (enough || finished) && !self.closed {
                worker.survived = true;
                let message = worker.error_message().map(|message| format!(": {message}"));
                // No generation gives the end of a newcomer as its reason.
                let is_new = self.coordinator.ranks().last(&worker.member).is_none();
                if let Some(message) = message.or(is_new.then(String::new)) {
                    self.messages.print(&format!("{name} {status}{message}"));
                }
                // A replacement would fail in the same way.
                let repeats = matches!(kind, Some(FailureKind::WrongInput | FailureKind::NoRoom));
                if self.restarts_left > 0 && !finished && !repeats {
                    self.restarts_left -= 1;
                    self.due_restarts.push((Instant::now() + RESTART_DELAY, worker.local_rank));
                }
            }
        }
        if let Some(cause) = too_few {
            self.close(cause);
        }
    }

    /// Returns what a failed worker lacked, if the job may not have begun: its first generation has not
    /// formed, or forms. The coordinator knows if a worker holds state.
    fn obstacle(&self, worker: &WorkerProcess, kind: Option<FailureKind>) -> Option<Obstacle> {
        let is_input = match kind? {
            FailureKind::WrongInput => true,
            FailureKind::NoRoom => false,
            FailureKind::OtherWriter | FailureKind::Diverged | FailureKind::StateLost => return None,
        };
        let node = node_rank_of(&worker.member).filter(|_| self.coordinator.generation() <= 1)?;
        let message = worker.error_message()?;
        Some(Obstacle { reason: format!("node {node}: {message}"), is_input })
    }

    /// Returns true if the failure of a worker loses nothing. Either it was killed after rank 0, which
    /// writes the job's result, had ended well. Or it was a replacement without a rank, and the other
    /// workers of this node have ended, some of them well.
    fn is_done_without(&self, worker: &WorkerProcess, workers: &Workers) -> bool {
        let ranks = self.coordinator.ranks();
        let rank_of = |worker: &WorkerProcess| ranks.current(&worker.member);
        let is_first = |worker: &&WorkerProcess| rank_of(worker) == Some(Rank(0));
        let was_killed = matches!(worker.status(), Some(ExitStatus::Signal(_)));
        was_killed && workers.list.iter().filter(is_first).any(has_ended_well)
            || rank_of(worker).is_none() && workers.all_ended() && workers.list.iter().any(has_ended_well)
    }

    /// Handles a failure to start a replacement: the job continues if the other workers are enough. While
    /// there are restarts left, a retry uses up one.
    pub fn not_replaced(&mut self, local_rank: usize, error: &LaunchError, workers: &Workers) {
        let tries_again = self.restarts_left > 0;
        let then = if tries_again { "Kolo tries again" } else { "the job continues without it" };
        self.messages.print(&format!("Kolo could not replace a dead worker: {error}; {then}"));
        if tries_again {
            self.restarts_left -= 1;
            self.due_restarts.push((Instant::now() + RETRY_DELAY, local_rank));
        } else if self.alive(workers) + self.due_restarts.len() < self.min_members {
            self.close(EndCause::Failed);
        }
    }

    /// Returns the number of running workers on all nodes.
    pub(super) fn alive(&self, workers: &Workers) -> usize {
        // Servers do not continue without workers.
        let trains = |worker: &&WorkerProcess| !worker.is_server && worker.status().is_none();
        workers.list.iter().filter(trains).count() + self.coordinator.remote_members()
    }

    pub(super) fn take_due_restarts(&mut self) -> Vec<usize> {
        let now = Instant::now();
        let due = self
            .due_restarts
            .iter()
            .filter(|(at, _)| *at <= now)
            .map(|(_, local_rank)| *local_rank)
            .collect();
        self.due_restarts.retain(|(at, _)| *at > now);
        due
    }
}

fn has_ended_well(worker: &WorkerProcess) -> bool {
    worker.status().is_some_and(|status| !status.failed())
}
