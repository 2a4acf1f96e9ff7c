//! Decisions about the workers of a job: a pure function of the recorded workers and the time.

use std::time::{Duration, Instant};

use kolo_schedule::words::counted;

use super::action::{Action, Decision, GivingUp};
use super::state::{COME_OR_GO, Status, WorkerRecord, WorkerSet};
use crate::events::{EndCause, Obstacle};
use crate::member_name::node_rank_of;
use crate::protocol::missing::list;

/// Time for which a process counts as working after it was last seen to work.
const WORKING_FOR: Duration = Duration::from_secs(5);
/// Factor on the timeout of a member whose process works: it may evaluate, or write a checkpoint.
const WORKING_FACTOR: u32 = 10;

impl WorkerSet {
    /// Decides the next action, with its reason. [`WorkerSet::apply`] records it.
    pub(crate) fn decide(&self, now: Instant) -> Decision {
        let count = |is: fn(Status) -> bool| self.workers.values().filter(|worker| is(worker.status)).count();
        let waiting = count(|status| matches!(status, Status::Waiting(_)));
        let participating = count(|status| status == Status::Participating);
        let started = count(|status| status == Status::Started);
        let enough = self.present() >= self.policy.min_members && self.end != Some(EndCause::TooFew);
        if waiting == 0 {
            return wait("no member waits for an assignment");
        }
        if self.generation == 0 {
            return self.decide_first(started, enough, now);
        }
        if participating == 0 && self.is_state_lost() {
            let lost = Action::ReportStateLost(self.candidates());
            return Decision::new(lost, "no member that held the job's state is left");
        }
        if let (Some(_), 0, Some(obstacle)) = (&self.ended, participating, self.obstacle()) {
            return abandon(obstacle);
        }
        match (&self.ended, participating) {
            (Some(ended), 0) if enough => self.form(&ended.reason),
            (Some(_), 0) if self.nobody_comes(started) => self.give_up(Duration::ZERO),
            (Some(ended), 0) if now >= ended.at + self.policy.too_few_timeout => self.give_up(now - ended.at),
            (Some(_), 0) => wait("too few members wait for a generation"),
            // A member that has left while the generation formed is waited for by the others, who look for this.
            (Some(_), 1..) if !self.regroup_requested => {
                Decision::new(Action::RequestRegroup, "the generation is over")
            }
            (Some(ended), 1..) => self.evict_hung(now, now - ended.at),
            (None, 0) if enough => self.form(COME_OR_GO),
            (None, 0) => Decision::new(Action::EndGeneration, "members have left"),
            (None, 1..) if self.end == Some(EndCause::TooFew) => wait("the job ends"),
            (None, 1..) if self.regroup_requested => wait("the running generation has not ended its step"),
            (None, 1..) => Decision::new(Action::RequestRegroup, "newcomers wait"),
        }
    }

    /// The first generation waits for all workers that have started, but not forever.
    fn decide_first(&self, started: usize, enough: bool, now: Instant) -> Decision {
        if let Some(obstacle) = self.obstacle().cloned().or_else(|| self.other_group()) {
            return abandon(&obstacle);
        }
        let late = now >= self.created + self.policy.start_timeout;
        match (started, enough) {
            // The launcher ends the others.
            _ if self.end >= Some(EndCause::Failed) => wait("the job ends before it begins"),
            (0, true) => self.form("the job begins"),
            (_, true) if late => self.form("the job begins without all"),
            (_, false) if self.nobody_comes(started) => self.give_up(Duration::ZERO),
            (_, false) if late => self.give_up(now - self.created),
            (0, false) => wait("too few members wait for a generation"),
            (1.., _) => wait("not all members that were started have arrived"),
        }
    }

    /// Describes workers that form a fixed group while members wait for them: neither group ever has all.
    fn other_group(&self) -> Option<Obstacle> {
        let (fixed, setting) =
            self.workers.iter().find_map(|(member, worker)| Some((member, worker.fixed.as_ref()?)))?;
        let waits = |worker: &WorkerRecord| matches!(worker.status, Status::Waiting(_));
        let (other, _) = self.workers.iter().find(|(_, worker)| waits(worker))?;
        let node =
            |member: &String| node_rank_of(member).map_or(member.clone(), |rank| format!("node {rank}"));
        let reason = format!(
            "{}: its {setting} needs all workers, and {} has workers that may come and go, without that setting; \
             give all nodes the same command",
            node(fixed),
            node(other)
        );
        Some(Obstacle { reason, is_input: true })
    }

    /// Returns true if too few waiting members need not, or must not, wait for others: none come, or the
    /// launcher of some ends them. `started`: number of members that may still arrive.
    fn nobody_comes(&self, started: usize) -> bool {
        let waits = |worker: &WorkerRecord| matches!(worker.status, Status::Waiting(_));
        let ends = || self.workers.values().any(|worker| waits(worker) && worker.is_closing);
        match self.end {
            Some(EndCause::TooFew) => true,
            Some(EndCause::Asked | EndCause::Failed) => started == 0,
            None => started == 0 && ends(),
        }
    }

    /// Returns true if no known worker holds the state of the job. Until one has reported that it holds the
    /// state, those that were in a generation count as holders.
    fn is_state_lost(&self) -> bool {
        !self.workers.values().any(|worker| self.holds_its_state(worker))
    }

    fn holds_its_state(&self, worker: &WorkerRecord) -> bool {
        match self.state_was_held {
            true => worker.has_state,
            false => worker.last_rank.is_some() && !worker.is_server,
        }
    }

    fn form(&self, reason: &str) -> Decision {
        let changes = Some(reason).filter(|reason| *reason == COME_OR_GO).and_then(|_| self.changes());
        Decision::new(Action::FormGeneration(self.candidates()), changes.as_deref().unwrap_or(reason))
    }

    /// Names the members of the last generation that have left it in good order, and the newcomers.
    fn changes(&self) -> Option<String> {
        let joins = |(member, worker): (&String, &WorkerRecord)| {
            let waits = matches!(worker.status, Status::Waiting(_)) && worker.last_rank.is_none();
            waits.then(|| format!("{member} joins"))
        };
        let left = self.left.iter().map(|(rank, member)| format!("rank {rank} ({member}) has left"));
        let changes = left.chain(self.workers.iter().filter_map(joins));
        Some(list(changes)).filter(|changes| !changes.is_empty())
    }

    fn give_up(&self, waited: Duration) -> Decision {
        let reason = format!("fewer than {} are there", counted(self.policy.min_members, "member"));
        let stays = |worker: &WorkerRecord| worker.is_server || self.holds_its_state(worker);
        let (survivors, others) = self.candidates().into_iter().partition(|candidate| {
            self.generation > 0 && self.workers.get(&candidate.member).is_some_and(stays)
        });
        Decision::new(Action::GiveUp(GivingUp { survivors, others, present: self.present(), waited }), reason)
    }

    /// Number of waiting members that train.
    pub(super) fn present(&self) -> usize {
        let trains =
            |worker: &&WorkerRecord| !worker.is_server && matches!(worker.status, Status::Waiting(_));
        self.workers.values().filter(trains).count()
    }

    /// Evicts the members that the others have waited for too long. Those that a signal has stopped may
    /// continue: as long as no other member has the state of the job for sure, they are waited for.
    fn evict_hung(&self, now: Instant, waited: Duration) -> Decision {
        let timeout = self.rejoin_timeout.unwrap_or(self.policy.rejoin_timeout);
        let longest = timeout.max(self.policy.rejoin_timeout).saturating_mul(WORKING_FACTOR);
        let works =
            |worker: &WorkerRecord| worker.last_worked.is_some_and(|(_, last)| now < last + WORKING_FOR);
        let hangs = |worker: &WorkerRecord| {
            worker.status == Status::Participating
                && waited >= timeout
                && (waited >= longest || !works(worker))
        };
        let has_state =
            |worker: &WorkerRecord| self.holds_its_state(worker) && !worker.is_stopped && !hangs(worker);
        let is_safe = self.workers.values().any(has_state);
        let is_kept = |worker: &WorkerRecord| !is_safe && worker.is_stopped && !worker.is_server;
        let hung = self.workers.iter().filter(|(_, worker)| hangs(worker) && !is_kept(worker));
        let hung: Vec<String> = hung.map(|(member, _)| member.clone()).collect();
        if hung.is_empty() {
            return wait("members of the last generation have not come back");
        }
        let alone = if is_safe { "" } else { ", with the only state of the job" };
        let reason = format!("has not come back to the others for {} s{alone}", waited.as_secs());
        Decision::new(Action::Evict(hung), reason)
    }
}

fn abandon(obstacle: &Obstacle) -> Decision {
    Decision::new(Action::Abandon(obstacle.clone()), "a worker cannot begin")
}

fn wait(reason: &str) -> Decision {
    Decision::new(Action::Wait, reason)
}
