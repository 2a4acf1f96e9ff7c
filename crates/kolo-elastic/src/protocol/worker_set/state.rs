//! The leader's record of the workers of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::action::{Action, Candidate, Decision, GivingUp};
use super::policy::MembershipPolicy;
use crate::events::{EndCause, MemberExit, Obstacle};
use crate::generation::{Formed, History};

/// CPU time between two reports, about a second apart, that shows work; a process that waits uses less.
const WORKING_CPU_TIME: Duration = Duration::from_millis(100);

/// Reason of a change that nobody has a better one for.
pub(super) const COME_OR_GO: &str = "workers come or go";

/// A worker's status between two generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Status {
    /// The worker has started, and has not arrived yet.
    Started,
    /// The worker waits for an assignment; the number of its arrival.
    Waiting(u64),
    /// The worker is in the running generation, or has not come back from the ended one.
    Participating,
}

/// One worker whose process has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkerRecord {
    pub(super) status: Status,
    /// The worker's rank in the last generation it was in.
    pub(super) last_rank: Option<usize>,
    /// Position of the worker in the order of first reports.
    first_report: u64,
    /// The CPU time of its process when it was last seen to work, and the time of that report.
    pub(super) last_worked: Option<(Duration, Instant)>,
    /// True if the worker has reported that it holds the state of the job.
    pub(super) has_state: bool,
    /// True for a summation server: it does not count towards the members that a job needs, and its rank
    /// follows those of all members that train.
    pub(super) is_server: bool,
    /// The setting because of which it does not arrive, but forms a fixed group; `None` for a member.
    pub(super) fixed: Option<String>,
    /// True while a signal has stopped its process.
    pub(super) is_stopped: bool,
    /// True if its launcher ends it, because other workers have failed.
    pub(super) is_closing: bool,
    /// The generations that the worker has been in, by its own report.
    history: History,
}

/// The end of the last generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ended {
    pub(super) at: Instant,
    pub(super) reason: String,
    /// True if a member gave the reason, which may have seen no more than a broken connection.
    is_guess: bool,
}

/// The workers of a job and the generation that they form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WorkerSet {
    pub(super) policy: MembershipPolicy,
    pub(super) created: Instant,
    /// By name.
    pub(super) workers: BTreeMap<String, WorkerRecord>,
    reports: u64,
    /// Number of the last generation; 0 before the first.
    pub(super) generation: u64,
    /// The end of that generation; `None` while it runs.
    pub(super) ended: Option<Ended>,
    pub(super) regroup_requested: bool,
    /// Ranks and names of that generation's members that have ended in good order.
    pub(super) left: BTreeSet<(usize, String)>,
    /// The cause for which no more workers will start; `None` while others may.
    pub(super) end: Option<EndCause>,
    /// The obstacle of a member that could not begin with the job.
    obstacle: Option<Obstacle>,
    pub(super) state_was_held: bool,
    /// The longest of the times that the returned workers would wait for the others.
    pub(super) rejoin_timeout: Option<Duration>,
}

impl WorkerSet {
    /// The workers of a job that begins.
    pub(crate) fn new(policy: MembershipPolicy, now: Instant) -> Self {
        WorkerSet {
            policy,
            created: now,
            workers: BTreeMap::new(),
            reports: 0,
            generation: 0,
            ended: None,
            regroup_requested: false,
            left: BTreeSet::new(),
            end: None,
            obstacle: None,
            state_was_held: false,
            rejoin_timeout: None,
        }
    }

    /// The workers of a job that another leader has led to this generation. The generation has ended for
    /// `reason`, because the last leader served its store.
    pub(crate) fn resume(policy: MembershipPolicy, last: &Formed, reason: &str, now: Instant) -> Self {
        let mut set = WorkerSet::new(policy, now);
        for (rank, member) in last.members.iter().enumerate() {
            let worker = set.record(member);
            (worker.status, worker.last_rank) = (Status::Participating, Some(rank));
        }
        (set.generation, set.state_was_held) = (last.generation, last.state_held);
        if last.generation > 0 {
            set.end_generation(now, reason.into());
        }
        set
    }

    /// Returns the obstacle that keeps the job from beginning; `None` if it has begun.
    pub(crate) fn obstacle(&self) -> Option<&Obstacle> {
        self.obstacle.as_ref().filter(|_| !self.state_was_held)
    }

    pub(crate) fn state_was_held(&self) -> bool {
        self.state_was_held
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Records a generation that another launcher knows of.
    pub(crate) fn has_been(&mut self, formed: &Formed) {
        self.generation = self.generation.max(formed.generation);
        self.state_was_held |= formed.state_held;
    }

    /// Sets the number of the next generation, which is above that of the last one.
    pub(crate) fn granted(&mut self, next: u64) {
        self.generation = self.generation.max(next.saturating_sub(1));
    }

    /// Names of all workers that have started and have not ended.
    pub(crate) fn members(&self) -> impl Iterator<Item = &str> {
        self.workers.keys().map(String::as_str)
    }

    /// Returns true if all members of the last generation have ended well: newcomers have nothing left to
    /// do.
    pub(crate) fn is_finished(&self) -> bool {
        self.generation > 0 && self.ended.is_none() && self.workers.values().all(|w| w.last_rank.is_none())
    }

    fn record(&mut self, member: &str) -> &mut WorkerRecord {
        self.reports += 1;
        let started = WorkerRecord {
            status: Status::Started,
            last_rank: None,
            first_report: self.reports,
            last_worked: None,
            has_state: false,
            is_server: false,
            fixed: None,
            is_stopped: false,
            is_closing: false,
            history: History::default(),
        };
        self.workers.entry(member.into()).or_insert(started)
    }

    /// Records that a member has started. Has no effect on a known member.
    pub(crate) fn started(&mut self, member: &str) {
        self.record(member);
    }

    /// Records that no more members will start, and why.
    pub(crate) fn close(&mut self, cause: EndCause) {
        self.end = self.end.max(Some(cause));
    }

    /// Records that the launcher of these members ends them, because others have failed.
    pub(crate) fn close_members<'a>(&mut self, members: impl Iterator<Item = &'a String>) {
        for member in members {
            if let Some(worker) = self.workers.get_mut(member) {
                worker.is_closing = true;
            }
        }
    }

    /// Records that a member waits for an assignment, with its arrival number. If it comes from the running
    /// generation, that generation has ended for `reason`.
    pub(crate) fn arrived(&mut self, member: &str, arrival: u64, reason: Option<String>, now: Instant) {
        let worker = self.record(member);
        let before = std::mem::replace(&mut worker.status, Status::Waiting(arrival));
        if before == Status::Participating {
            let reason = reason.unwrap_or_else(|| COME_OR_GO.into());
            self.ended.get_or_insert(Ended { at: now, reason, is_guess: true });
        }
    }

    /// Records that a known worker forms a fixed group, because of a setting.
    pub(crate) fn fixed(&mut self, member: &str, setting: &str) {
        if let Some(worker) = self.workers.get_mut(member) {
            worker.fixed = Some(setting.into());
        }
    }

    /// Records that a signal has stopped a known member's process, or that it has continued.
    pub(crate) fn stopped(&mut self, member: &str, stopped: bool) {
        if let Some(worker) = self.workers.get_mut(member) {
            worker.is_stopped = stopped;
        }
    }

    pub(crate) fn holds_state(&mut self, member: &str) {
        self.record(member).has_state = true;
        self.state_was_held = true;
    }

    /// Records the generations that a member reports.
    pub(crate) fn has_been_in(&mut self, member: &str, history: History) {
        self.record(member).history = history;
    }

    pub(crate) fn histories<'a>(&'a self, candidates: &'a [Candidate]) -> impl Iterator<Item = &'a History> {
        candidates.iter().filter_map(|candidate| Some(&self.workers.get(&candidate.member)?.history))
    }

    pub(crate) fn is_server(&mut self, member: &str) {
        self.record(member).is_server = true;
    }

    /// Records the time that a member which has come back would wait for the others.
    pub(crate) fn suggest_rejoin_timeout(&mut self, timeout: Duration) {
        self.rejoin_timeout = self.rejoin_timeout.max(Some(timeout));
    }

    /// Records the CPU time that a member's process has used since it began.
    pub(crate) fn took_cpu_time(&mut self, member: &str, total: Duration, now: Instant) {
        if let Some(worker) = self.workers.get_mut(member)
            && worker.last_worked.is_none_or(|(before, _)| total >= before + WORKING_CPU_TIME)
        {
            worker.last_worked = Some((total, now));
        }
    }

    /// Records the end of a member's process. Returns its rank if it was in the running generation.
    pub(crate) fn exited(&mut self, member: &str, exit: &MemberExit, now: Instant) -> Option<usize> {
        let worker = self.workers.remove(member);
        let begins = match self.generation {
            0 => true,
            1 => worker.as_ref().is_some_and(|worker| worker.last_rank.is_some()),
            _ => false,
        };
        let how = match exit {
            MemberExit::Clean => None,
            MemberExit::Failed(how) => Some(how),
            MemberExit::CannotBegin { how, obstacle } => {
                if begins {
                    self.obstacle.get_or_insert_with(|| obstacle.clone());
                }
                Some(how)
            }
        };
        let worker = worker?;
        let rank = worker.last_rank.filter(|_| worker.status == Status::Participating)?;
        match how {
            Some(how) => self.end_generation(now, format!("rank {rank} ({member}) {how}")),
            None => drop(self.left.insert((rank, member.into()))),
        }
        Some(rank)
    }

    /// Keeps the first reason that a leader or a launcher gives, or else the first guess.
    fn end_generation(&mut self, now: Instant, reason: String) {
        let at = self.ended.as_ref().map_or(now, |ended| ended.at);
        if self.ended.as_ref().is_none_or(|ended| ended.is_guess) {
            self.ended = Some(Ended { at, reason, is_guess: false });
        }
    }

    /// The waiting members: servers last; among the others, first those of an earlier generation, by rank.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let waiting = |(member, worker): (&String, &WorkerRecord)| match worker.status {
            Status::Waiting(arrival) => {
                let last_rank = worker.last_rank.unwrap_or(usize::MAX);
                let order = (worker.is_server, last_rank, worker.first_report);
                Some((order, Candidate { member: member.clone(), arrival }))
            }
            Status::Started | Status::Participating => None,
        };
        let mut candidates: Vec<_> = self.workers.iter().filter_map(waiting).collect();
        candidates.sort_by_key(|(order, _)| *order);
        candidates.into_iter().map(|(_, candidate)| candidate).collect()
    }

    pub(crate) fn apply(&mut self, decision: &Decision, now: Instant) {
        match &decision.action {
            Action::Wait | Action::Abandon(_) => {}
            Action::FormGeneration(candidates) => self.take_part(candidates),
            Action::RequestRegroup => self.regroup_requested = true,
            Action::EndGeneration => self.end_generation(now, decision.reason.clone()),
            Action::Evict(members) => self.workers.retain(|member, _| !members.contains(member)),
            Action::GiveUp(GivingUp { survivors, others, .. }) => {
                self.leave_out(others);
                if !survivors.is_empty() {
                    self.close(EndCause::TooFew);
                    self.take_part(survivors);
                }
            }
            Action::ReportStateLost(candidates) => self.leave_out(candidates),
        }
    }

    /// Records the members of the next group, in the order of their ranks.
    fn take_part(&mut self, candidates: &[Candidate]) {
        for (rank, candidate) in candidates.iter().enumerate() {
            let worker = self.record(&candidate.member);
            (worker.status, worker.last_rank) = (Status::Participating, Some(rank));
        }
        self.generation += 1;
        (self.ended, self.regroup_requested, self.rejoin_timeout) = (None, false, None);
        self.left.clear();
    }

    fn leave_out(&mut self, candidates: &[Candidate]) {
        candidates.iter().for_each(|candidate| drop(self.workers.remove(&candidate.member)));
    }
}
