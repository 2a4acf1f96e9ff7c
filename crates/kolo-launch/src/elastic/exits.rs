//! Workers that have ended: whether the job goes on without them, who is replaced, when the work is done.
//!
//! That the work is done is seen in three ways, because each is known when the others are not yet.
//! [`workers_are_done`]: all of this node's have ended well, and no launcher may join any more.
//! [`Coordinator::is_finished`](kolo_elastic::Coordinator::is_finished): all of the last generation have, on
//! all nodes, and who still fails is not replaced. [`Elastic::is_done_without`]: one has been killed in the
//! same moment, and what the job comes to has been written all the same.

use std::time::{Duration, Instant};

use kolo_comm::Rank;
use kolo_elastic::MemberExit;
use signal_hook::consts::signal::SIGTERM;

use super::Elastic;
use crate::error::LaunchError;
use crate::worker_exit::{ExitStatus, SHELL_SIGNAL_BASE};
use crate::workers::{WorkerProcess, Workers};

/// A worker is replaced so long after its death. Where a mistake of the program ends all workers at once,
/// none is replaced.
const RESTART_DELAY: Duration = Duration::from_millis(500);
/// A worker that could not be started is tried again so long after that: what was missing (descriptors,
/// processes, memory) may be there again.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// A worker that ends with this code, as a shell tells of a program that SIGTERM has ended, says that all
/// were asked to end: it is not replaced.
const TERMINATED: ExitStatus = ExitStatus::Code(SHELL_SIGNAL_BASE + SIGTERM);

impl Elastic {
    /// Tells the coordinator who has ended, and decides whether the job goes on without them. `alive` workers
    /// are left on all nodes.
    pub(super) fn report_exits(&mut self, workers: &mut Workers, alive: usize) {
        let formed = self.coordinator.generation() > 0;
        let mut too_few = false;
        for index in 0..workers.list.len() {
            let worker = &workers.list[index];
            let Some(status) = worker.status().filter(|_| !worker.reported) else { continue };
            let (name, done) = (workers.name(&worker.member), self.is_done_without(worker, workers));
            let worker = &mut workers.list[index];
            worker.reported = true;
            let exit =
                if status.failed() { MemberExit::Failed(status.to_string()) } else { MemberExit::Clean };
            self.coordinator.member_exited(&worker.member, &exit);
            // A worker that has left in good order is not replaced.
            let coming = self.due_restarts.len() + if status.failed() { self.restarts_left } else { 0 };
            let enough = alive > 0 && alive + coming >= self.min_members && status != TERMINATED;
            too_few |= formed && !enough;
            if !status.failed() || !formed {
                continue;
            }
            // A replacement that comes when the work is done is not needed, however it ends.
            let finished = self.coordinator.is_finished();
            if done {
                worker.survived = true;
                self.messages.say(&format!("{name} {status} when the work was done"));
            } else if (enough || finished) && !self.closed {
                worker.survived = true;
                if let Some(message) = worker.error_message() {
                    self.messages.say(&format!("{name} {status}: {message}"));
                }
                if self.restarts_left > 0 && !finished {
                    self.restarts_left -= 1;
                    self.due_restarts.push((Instant::now() + RESTART_DELAY, worker.local_rank));
                }
            }
        }
        if too_few {
            self.close();
        }
    }

    /// Whether nothing is lost with a worker that has failed: it was killed when rank 0, which writes what a
    /// job comes to, had ended well; or it was to take somebody's place, and the others here have ended, some
    /// of them well.
    fn is_done_without(&self, worker: &WorkerProcess, workers: &Workers) -> bool {
        let ranks = self.ranks();
        let rank_of = |worker: &WorkerProcess| ranks.current(&worker.member);
        let is_first = |worker: &&WorkerProcess| rank_of(worker) == Some(Rank(0));
        let was_killed = matches!(worker.status(), Some(ExitStatus::Signal(_)));
        was_killed && workers.list.iter().filter(is_first).any(has_ended_well)
            || rank_of(worker).is_none() && workers.all_ended() && workers.list.iter().any(has_ended_well)
    }

    /// A worker could not be started in place of another one: the job goes on with the others, if they are
    /// enough. As long as there are restarts another try is one.
    pub fn not_replaced(&mut self, local_rank: usize, error: &LaunchError, workers: &Workers) {
        let tries_again = self.restarts_left > 0;
        let then = if tries_again { "it is tried again" } else { "the job goes on without" };
        self.messages.say(&format!("no worker could be started in place of a dead one: {error}; {then}"));
        if tries_again {
            self.restarts_left -= 1;
            self.due_restarts.push((Instant::now() + RETRY_DELAY, local_rank));
        } else if self.alive(workers) + self.due_restarts.len() < self.min_members {
            self.close();
        }
    }

    /// Workers of all nodes that go on.
    pub(super) fn alive(&self, workers: &Workers) -> usize {
        // Servers do not go on without workers.
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

/// Whether some worker has ended well and all others have as well, or are dead workers that the others have
/// survived.
pub(super) fn workers_are_done(workers: &Workers) -> bool {
    workers.list.iter().any(has_ended_well)
        && workers.list.iter().all(|worker| worker.survived || has_ended_well(worker))
}

fn has_ended_well(worker: &WorkerProcess) -> bool {
    worker.status().is_some_and(|status| !status.failed())
}
