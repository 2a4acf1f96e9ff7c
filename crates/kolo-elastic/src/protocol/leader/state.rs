//! A leader's knowledge, and its changes with events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::events::{CoordinatorEvent, MemberEvent, MemberExit};
use crate::generation::{Formed, identity};
use crate::launcher_protocol::ToFollower;
use crate::member_name::node_rank_of;
use crate::protocol::claims::Claims;
use crate::protocol::context::Context;
use crate::protocol::effect::{Effect, Effects};
use crate::protocol::event::Event;
use crate::protocol::follower_state::FollowerEvent;
use crate::protocol::followers::Followers;
use crate::protocol::lineage::Lineage;
use crate::protocol::local_members::{Detached, LocalMembers};
use crate::protocol::worker_set::{GivingUp, WorkerSet};
use crate::timeouts::FAREWELL;
use crate::worker_protocol::Arrival;

/// Reason to evict a member that an earlier leader, or an earlier message, has evicted.
const DOES_NOT_COME_BACK: &str = "does not come back to the others";
/// The end of a member whose launcher has gone.
const LOST: &str = "was lost with its launcher";

/// The leader's part of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    pub(super) workers: WorkerSet,
    /// The generations that the next one may follow.
    pub(super) lineage: Lineage,
    pub(super) claims: Claims,
    /// Identities of the members that have arrived, by name.
    pub(super) identities: BTreeMap<String, String>,
    /// The launchers of other nodes; `None` for a job of one node.
    pub(crate) followers: Option<Followers>,
    /// Number of workers that this node starts when the job begins.
    pub(super) deferred_workers: usize,
    /// Evicted members that have not ended, as far as the leader knows.
    pub(super) evicted: BTreeSet<String>,
    /// Reason of the last decision, kept so that it is logged only once.
    pub(super) last_reason: String,
    /// The end of the job while the store of its last group starts.
    pub(super) ends: Option<GivingUp>,
    /// Time and reason of giving up.
    pub(super) given_up: Option<(Instant, Detached)>,
}

impl Leader {
    pub(crate) fn new(context: &Context, followers: Option<Followers>, now: Instant) -> Leader {
        Leader {
            workers: WorkerSet::new(context.policy, now),
            lineage: Lineage::default(),
            claims: Claims::new(context.policy.too_few_timeout),
            identities: BTreeMap::new(),
            followers,
            deferred_workers: context.deferred_workers,
            evicted: BTreeSet::new(),
            last_reason: String::new(),
            ends: None,
            given_up: None,
        }
    }

    /// Creates the leader of a job that another launcher has led until now.
    pub(crate) fn take_over(
        context: &Context,
        followers: Followers,
        local: &LocalMembers,
        now: Instant,
        out: &mut Effects,
    ) -> Leader {
        let reason = "the leading launcher was lost";
        let mut workers = WorkerSet::resume(context.policy, &local.formed, reason, now);
        let mut lineage = local.lineage.clone();
        let Formed { members, identities, .. } = local.formed.clone();
        let nodes: BTreeSet<usize> =
            followers.view.launchers.iter().map(|launcher| launcher.node_rank).collect();
        for (member, identity) in members.iter().zip(&identities) {
            let node_rank = node_rank_of(member);
            if node_rank.is_none_or(|rank| !nodes.contains(&rank)) {
                workers.exited(member, &MemberExit::Failed(LOST.into()), now);
            }
            // The new leader knows more about the members of its own node than the last one did.
            if node_rank == local.node_rank && !local.contains(member) {
                workers.exited(member, &local.exit_of(member), now);
                lineage.died(identity);
            }
        }
        let identities = members.into_iter().zip(identities).collect();
        let begun = Leader::new(context, Some(followers), now);
        let mut leader = Leader { workers, lineage, identities, deferred_workers: 0, ..begun };
        leader.meet_local_members(local, now);
        leader.inherit_evicted(local, out);
        leader
    }

    /// Evicts this node's members that the last leader evicted; those of other nodes when they are reported.
    fn inherit_evicted(&mut self, local: &LocalMembers, out: &mut Effects) {
        for member in &local.formed.evicted {
            if local.contains(member) {
                self.evict(member.clone(), DOES_NOT_COME_BACK, out);
            } else if node_rank_of(member) != local.node_rank {
                self.evicted.insert(member.clone());
            }
        }
    }

    /// Records the members of this node that arrived before this launcher led.
    pub(crate) fn meet_local_members(&mut self, local: &LocalMembers, now: Instant) {
        if let Some((member, exit)) = &local.unable {
            self.workers.exited(member, exit, now);
        }
        for (member, unanswered) in &local.unanswered {
            self.workers.started(member);
            if let Some(arrival) = unanswered.clone() {
                self.arrived(member, arrival, now);
            }
        }
        local.fixed.iter().for_each(|(member, setting)| self.workers.fixed(member, setting));
        local.stopped.iter().for_each(|member| self.workers.stopped(member, true));
    }

    /// Handles an event, and decides when time has passed or the arbiter has answered.
    /// Fails if this launcher must not lead any more.
    pub(crate) fn handle(
        &mut self,
        event: Event,
        now: Instant,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) -> Result<(), Detached> {
        if let Some((since, reason)) = &self.given_up {
            return if now < *since + FAREWELL { Ok(()) } else { Err(reason.clone()) };
        }
        match event {
            Event::Member { member, event } => self.member_event(&member, event, now, out),
            Event::WorkDone => self.followers.iter_mut().for_each(|followers| followers.work_done(out)),
            Event::FromFollower { connection, message } => {
                let Some(followers) = &mut self.followers else { return Ok(()) };
                let events = followers.receive(connection, message, now, out);
                return events.into_iter().try_for_each(|event| self.follower_event(event, now, out));
            }
            Event::Probed { launcher, connection, view } => {
                let Some(followers) = &mut self.followers else { return Ok(()) };
                let events = followers.probed(launcher, connection, view, now, out);
                return events.into_iter().try_for_each(|event| self.follower_event(event, now, out));
            }
            Event::TokenRefused(host) => {
                if self.followers.as_mut().is_some_and(|followers| followers.token_refused(host)) {
                    out.report(CoordinatorEvent::LauncherRefused { host });
                }
            }
            Event::ClaimAnswered(answer) => {
                self.claims.answered(answer);
                self.tick(now, context, local, out);
            }
            Event::LastServed(store) => {
                if let Some(ends) = self.ends.take() {
                    self.end_job(ends, store, context, local, out);
                }
            }
            Event::Tick => self.tick(now, context, local, out),
            Event::End => self.say_goodbye(out),
            // The next tick handles it, in whatever role the event found the launcher.
            Event::Closed(_) => {}
            // Events of a launcher that looks for a leader, or follows one.
            Event::Found(_)
            | Event::NotFound { .. }
            | Event::Welcomed
            | Event::RefusedByLeader { .. }
            | Event::FromLeader(_)
            | Event::LeaderLost { .. } => {}
        }
        Ok(())
    }

    /// Records an event of a member of any node.
    fn member_event(&mut self, member: &str, event: MemberEvent, now: Instant, out: &mut Effects) {
        match event {
            MemberEvent::Started => {
                self.workers.started(member);
                // Its launcher reports it again: it still lives, and the request to kill it was lost.
                if self.evicted.contains(member) {
                    self.evict(member.into(), DOES_NOT_COME_BACK, out);
                }
            }
            MemberEvent::Arrived(arrival) => self.arrived(member, arrival, now),
            MemberEvent::CpuTime(total) => self.workers.took_cpu_time(member, total, now),
            MemberEvent::Fixed(setting) => self.workers.fixed(member, &setting),
            MemberEvent::Stopped(stopped) => self.workers.stopped(member, stopped),
            MemberEvent::Exited(exit) => {
                self.has_ended(member);
                self.exited(member, &exit, now, out);
            }
        }
    }

    fn arrived(&mut self, member: &str, arrival: Arrival, now: Instant) {
        let Arrival { number, reason, rejoin_timeout_ms, has_state, server, incarnation, history } = arrival;
        self.lineage.reported(&history);
        self.identities.insert(member.into(), identity(member, incarnation));
        self.workers.arrived(member, number, reason, now);
        self.workers.has_been_in(member, history);
        if server {
            self.workers.is_server(member);
        }
        if let Some(ms) = rejoin_timeout_ms {
            self.workers.suggest_rejoin_timeout(Duration::from_millis(ms));
        }
        if has_state {
            self.workers.holds_state(member);
        }
    }

    /// Records a report of the member's own launcher that its process has ended.
    fn has_ended(&mut self, member: &str) {
        self.evicted.remove(member);
        if let Some(identity) = self.identities.remove(member) {
            self.lineage.died(&identity);
        }
    }

    /// Records an exit; the other members of its generation learn of a failure at once.
    fn exited(&mut self, member: &str, exit: &MemberExit, now: Instant, out: &mut Effects) {
        let rank = self.workers.exited(member, exit, now);
        if let Some(rank) = rank.filter(|_| *exit != MemberExit::Clean) {
            out.push(Effect::FailGeneration { rank });
        }
    }

    /// Describes the launchers or members that this launcher waits for before the next generation.
    pub(crate) fn waits_for(&self, context: &Context) -> Option<String> {
        if self.given_up.is_some() {
            return None;
        }
        let followers = self.followers.as_ref().and_then(|followers| followers.waits_for(context));
        followers.or_else(|| self.workers.waits_for())
    }

    /// Returns true if all members of the last generation have ended well.
    pub(crate) fn is_finished(&self) -> bool {
        self.workers.is_finished()
    }

    /// Informs the followers that this launcher ends, and which members have ended.
    fn say_goodbye(&mut self, out: &mut Effects) {
        let ended = self.lineage.dead().chain(self.identities.values()).cloned().collect();
        let obstacle = self.workers.obstacle().cloned();
        self.send_all(&ToFollower::Goodbye { ended, obstacle }, out);
    }

    fn follower_event(
        &mut self,
        event: FollowerEvent,
        now: Instant,
        out: &mut Effects,
    ) -> Result<(), Detached> {
        match event {
            FollowerEvent::Member { member, event } => self.member_event(&member, event, now, out),
            FollowerEvent::CameBack { id, generations } => {
                for formed in &generations {
                    self.lineage.announced(formed);
                    self.workers.has_been(formed);
                }
                // The follower may have missed these while it was away, and must know them if it leads next.
                for formed in self.lineage.generations() {
                    self.followers
                        .iter_mut()
                        .for_each(|it| it.send(id, &ToFollower::Formed(formed.clone()), out));
                }
            }
            FollowerEvent::Lost { node_rank, members, said_goodbye } => {
                log::info!("the launcher of node {node_rank} has gone, with {} members", members.len());
                let exit = MemberExit::Failed(LOST.into());
                for member in &members {
                    self.evicted.remove(member);
                    if said_goodbye {
                        self.has_ended(member);
                    }
                    self.exited(member, &exit, now, out);
                }
            }
            FollowerEvent::Deposed { address } => {
                let gone_on = "the others have continued without this launcher";
                let reason = format!("{gone_on}; the one at {address} leads now");
                return Err(Detached::Superseded(reason));
            }
        }
        Ok(())
    }

    pub(super) fn owner(&self, member: &str) -> Option<u64> {
        self.followers.as_ref().and_then(|followers| followers.owner(member))
    }

    pub(super) fn send_all(&mut self, message: &ToFollower, out: &mut Effects) {
        if let Some(followers) = &mut self.followers {
            followers.send_all(message, out);
        }
    }
}
