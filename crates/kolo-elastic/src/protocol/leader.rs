//! The leader of a job: the coordinator that hears of the members of all nodes, and decides about them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::claims::{Claimed, Claims};
use super::context::Context;
use super::effect::{Effect, Effects};
use super::event::Event;
use super::follower_state::FollowerEvent;
use super::followers::Followers;
use super::lineage::Lineage;
use super::local_members::{Detached, LocalMembers};
use super::worker_set::{Action, Candidate, Decision, WorkerSet};
use crate::arbiter::Claim;
use crate::events::{CoordinatorEvent, MemberEvent, MemberExit};
use crate::generation::{Formed, GenerationId, History, identity};
use crate::launcher_protocol::ToFollower;
use crate::member_name::{node_of, node_rank_of};
use crate::timeouts::FAREWELL;
use crate::worker_protocol::{Arrival, Assignment, Reply};

/// The leader's part of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    workers: WorkerSet,
    /// The generations that the next one may follow.
    lineage: Lineage,
    claims: Claims,
    /// What tells members that have arrived from other processes of their names.
    identities: BTreeMap<String, String>,
    /// The launchers of other nodes, where there may be some.
    pub(crate) followers: Option<Followers>,
    /// Workers that are started on this node when the job begins.
    deferred_workers: usize,
    /// No more workers will be started on this node.
    closed: bool,
    /// The reason of the last decision, so that the log has it once.
    last_reason: String,
    /// When the leader gave up, and why.
    given_up: Option<(Instant, Detached)>,
}

impl Leader {
    /// The leader of a job that begins.
    pub(crate) fn new(context: &Context, followers: Option<Followers>, now: Instant) -> Leader {
        Leader {
            workers: WorkerSet::new(context.policy, now),
            lineage: Lineage::default(),
            claims: Claims::new(context.policy.too_few_timeout),
            identities: BTreeMap::new(),
            followers,
            deferred_workers: context.deferred_workers,
            closed: false,
            last_reason: String::new(),
            given_up: None,
        }
    }

    /// The leader of a job that another launcher has led until now.
    pub(crate) fn take_over(
        context: &Context,
        followers: Followers,
        local: &LocalMembers,
        now: Instant,
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
                workers.exited(member, Some("was lost with its launcher"), now);
            }
            // Of this node's members the new leader knows more than the last one.
            if node_rank == local.node_rank && !local.contains(member) {
                workers.exited(member, None, now);
                lineage.died(identity);
            }
        }
        let identities = members.into_iter().zip(identities).collect();
        let begun = Leader::new(context, Some(followers), now);
        let mut leader = Leader { workers, lineage, identities, deferred_workers: 0, ..begun };
        leader.meet_local_members(local, now);
        leader
    }

    /// Learns of the members of this node that have come before it led.
    pub(crate) fn meet_local_members(&mut self, local: &LocalMembers, now: Instant) {
        for (member, unanswered) in &local.unanswered {
            self.workers.started(member);
            if let Some(arrival) = unanswered.clone() {
                self.arrived(member, arrival, now);
            }
        }
    }

    /// Takes note of what has happened; decides what follows from all that is known when time has passed or
    /// the arbiter has answered.
    ///
    /// # Errors
    ///
    /// This launcher must not lead any more.
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
            Event::Closed => self.closed = true,
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
                    out.tell(CoordinatorEvent::LauncherRefused { host });
                }
            }
            Event::ClaimAnswered(answer) => {
                self.claims.answered(answer);
                self.tick(now, context, local, out);
            }
            Event::Tick => self.tick(now, context, local, out),
            Event::End => self.say_goodbye(out),
            // What a launcher hears that looks for a leader, or follows one.
            Event::Found(_)
            | Event::NotFound { .. }
            | Event::Welcomed
            | Event::RefusedByLeader { .. }
            | Event::FromLeader(_)
            | Event::LeaderLost { .. } => {}
        }
        Ok(())
    }

    /// Takes note of what has happened to a member of any node.
    fn member_event(&mut self, member: &str, event: MemberEvent, now: Instant, out: &mut Effects) {
        match event {
            MemberEvent::Started => self.workers.started(member),
            MemberEvent::Arrived(arrival) => self.arrived(member, arrival, now),
            MemberEvent::CpuTime(total) => self.workers.took_cpu_time(member, total, now),
            MemberEvent::Exited(exit) => {
                self.has_ended(member);
                self.exited(member, &exit, now, out);
            }
        }
    }

    fn arrived(&mut self, member: &str, arrival: Arrival, now: Instant) {
        let Arrival { number, reason, rejoin_timeout_ms, has_state, server, incarnation, history } = arrival;
        self.lineage.heard(&history);
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

    /// The member's own launcher says that its process has ended.
    fn has_ended(&mut self, member: &str) {
        if let Some(identity) = self.identities.remove(member) {
            self.lineage.died(&identity);
        }
    }

    /// Those of the member's generation hear at once that it has failed.
    fn exited(&mut self, member: &str, exit: &MemberExit, now: Instant, out: &mut Effects) {
        let failure = match exit {
            MemberExit::Clean => None,
            MemberExit::Failed(how) => Some(how.as_str()),
        };
        let rank = self.workers.exited(member, failure, now);
        if let (Some(rank), Some(_)) = (rank, failure) {
            out.push(Effect::FailGeneration { rank });
        }
    }

    /// Whether all members of the last generation have ended well.
    pub(crate) fn is_finished(&self) -> bool {
        self.workers.is_finished()
    }

    /// Does what follows from all that is known now.
    fn tick(&mut self, now: Instant, context: &Context, local: &mut LocalMembers, out: &mut Effects) {
        if let Some(followers) = &mut self.followers {
            followers.probe_the_silent(now, out);
            let started = followers.begin_job(self.deferred_workers, out);
            started.iter().for_each(|member| self.workers.started(member));
            local.initial_nodes = followers.view.initial_nodes;
            if !followers.has_begun() && now >= context.begins_by {
                let reason = followers.too_few(context.start_timeout);
                followers.send_all(&ToFollower::Refused { reason: reason.clone() }, out);
                self.given_up = Some((now, format!("it {reason}").into()));
                return;
            }
        }
        self.count_remote_members(local, out);
        // Other launchers may start more workers.
        if self.closed && self.followers.as_ref().is_none_or(Followers::is_empty) {
            self.workers.close();
        }
        if self.followers.as_ref().is_none_or(Followers::are_ready) {
            self.decide(now, context, local, out);
        }
    }

    fn decide(&mut self, now: Instant, context: &Context, local: &mut LocalMembers, out: &mut Effects) {
        let decision = self.workers.decide(now);
        let Action::FormGeneration(candidates) = &decision.action else {
            self.workers.apply(&decision, now);
            return self.act(decision, context, local, out);
        };
        let Some(store) = self.claim(context, local, candidates, now, out) else {
            self.claims.news().into_iter().for_each(|news| out.warn(news));
            return;
        };
        self.workers.apply(&decision, now);
        match store {
            Ok(store) => {
                let (candidates, reason) = (candidates.clone(), decision.reason);
                self.form_generation(context.launcher_id, local, &candidates, reason, store, out);
            }
            Err(reason) => {
                out.warn(format!("no generation can be formed: {reason}"));
                self.reply(local, candidates, out, |_| Reply::Failed { reason: reason.clone() });
            }
        }
    }

    /// Claims the next generation for these members; gives its store when it may be formed now. Where another
    /// leader goes on, or may, this one gives up.
    fn claim(
        &mut self,
        context: &Context,
        local: &LocalMembers,
        candidates: &[Candidate],
        now: Instant,
        out: &mut Effects,
    ) -> Option<Result<SocketAddr, String>> {
        let claim = Claim {
            job: self.followers.as_ref().map_or(context.launcher_id, |followers| followers.view.job_id),
            leader: context.launcher_id,
            place: context.place.clone(),
            newest: self.lineage.newest().max(self.workers.generation()),
            members: self.identities_of(candidates),
            left: self.workers.histories(candidates).flat_map(History::all).collect(),
            abandoned: self.abandoned_by(candidates, local),
            told: self.lineage.generations().iter().map(Formed::id).collect(),
            predecessors: self.lineage.predecessors(self.workers.histories(candidates)),
        };
        match self.claims.claim(&claim, now, out) {
            Claimed::Granted { number, store } => {
                self.workers.granted(number);
                Some(store)
            }
            Claimed::Waits => None,
            Claimed::Refused(reason) => {
                self.send_all(&ToFollower::Superseded { reason: reason.clone() }, out);
                self.given_up = Some((now, Detached { reason, superseded: true }));
                None
            }
        }
    }

    /// The leaders that the candidates' launchers have left for good.
    fn abandoned_by(&self, candidates: &[Candidate], local: &LocalMembers) -> BTreeSet<(String, u64)> {
        let mut abandoned = BTreeSet::new();
        for Candidate { member, .. } in candidates {
            let left = match (self.owner(member), &self.followers) {
                (Some(id), Some(followers)) => followers.left_by(id),
                _ => Some(&local.left),
            };
            if let (Some(left), Some(identity)) = (left, self.identities.get(member)) {
                abandoned.extend(left.iter().map(|leader| (identity.clone(), *leader)));
            }
        }
        abandoned
    }

    fn identities_of(&self, candidates: &[Candidate]) -> Vec<String> {
        let known = candidates.iter().filter_map(|candidate| self.identities.get(&candidate.member));
        known.cloned().collect()
    }

    /// Tells the followers that this launcher ends, and its members have.
    fn say_goodbye(&mut self, out: &mut Effects) {
        let ended = self.lineage.dead().chain(self.identities.values()).cloned().collect();
        self.send_all(&ToFollower::Goodbye { ended }, out);
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
                    self.lineage.told(formed);
                    self.workers.has_been(formed);
                }
                // It may have been away when these were told, and must know them if it leads next.
                for formed in self.lineage.generations() {
                    self.followers
                        .iter_mut()
                        .for_each(|it| it.send(id, &ToFollower::Formed(formed.clone()), out));
                }
            }
            FollowerEvent::Lost { node_rank, members, said_so } => {
                log::info!("the launcher of node {node_rank} has gone, with {} members", members.len());
                let exit = MemberExit::Failed("was lost with its launcher".into());
                for member in &members {
                    if said_so {
                        self.has_ended(member);
                    }
                    self.exited(member, &exit, now, out);
                }
            }
            FollowerEvent::Deposed { address } => {
                let gone_on = "the others have gone on without this launcher";
                let reason = format!("{gone_on}; the one at {address} leads now");
                return Err(Detached { reason, superseded: true });
            }
        }
        Ok(())
    }

    fn count_remote_members(&mut self, local: &mut LocalMembers, out: &mut Effects) {
        let Some(followers) = &mut self.followers else { return };
        let members: BTreeSet<&str> = self.workers.members().collect();
        local.remote_members = members.iter().filter(|member| !local.contains(member)).count();
        followers.tell_remote_members(&members, out);
    }

    fn act(&mut self, decision: Decision, context: &Context, local: &mut LocalMembers, out: &mut Effects) {
        let Decision { action, reason } = decision;
        if self.last_reason != reason {
            log::debug!("{reason}: {action:?}");
            self.last_reason.clone_from(&reason);
        }
        match action {
            Action::Wait | Action::EndGeneration | Action::FormGeneration(_) => {}
            Action::RequestRegroup => {
                let generation = self.workers.generation();
                out.push(Effect::RequestRegroup { generation });
                self.send_all(&ToFollower::RequestRegroup { generation }, out);
            }
            Action::Evict(members) => members.into_iter().for_each(|member| self.evict(member, out)),
            Action::GiveUp { candidates, present, waited } => {
                let min = context.policy.min_members;
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                self.reply(local, &candidates, out, |rank| Reply::TooFew {
                    present,
                    min,
                    waited_ms,
                    first: rank == 0,
                });
                out.tell(CoordinatorEvent::TooFewMembers { present });
                self.send_all(&ToFollower::TooFewMembers { present }, out);
            }
            Action::ReportStateLost(candidates) => self.reply(local, &candidates, out, |_| Reply::StateLost),
        }
    }

    fn form_generation(
        &mut self,
        leader: u64,
        local: &mut LocalMembers,
        candidates: &[Candidate],
        reason: String,
        store: SocketAddr,
        out: &mut Effects,
    ) {
        let generation = self.workers.generation();
        log::debug!("{reason}: generation {generation} of {} members", candidates.len());
        let id = GenerationId { number: generation, leader };
        let members: Vec<String> = candidates.iter().map(|candidate| candidate.member.clone()).collect();
        // Followers hear of the generation before its members do: whoever leads next must know where its
        // members are.
        let state_held = self.workers.state_was_held();
        let identities = self.identities_of(candidates);
        let formed = Formed { generation, leader, members, identities, reason: reason.clone(), state_held };
        self.lineage.told(&formed);
        self.followers.iter_mut().for_each(|followers| followers.granted(generation, out));
        self.send_all(&ToFollower::Formed(formed.clone()), out);
        local.generation_formed(formed, out);
        self.reply(local, candidates, out, |rank| {
            let node = node_of(&candidates[rank].member);
            let local_rank = candidates[..rank].iter().filter(|other| node_of(&other.member) == node).count();
            let (world_size, reason) = (candidates.len(), reason.clone());
            Reply::Assigned(Assignment { generation: id, rank, world_size, local_rank, store, reason })
        });
    }

    /// Has a member killed by the launcher that has started it.
    fn evict(&mut self, member: String, out: &mut Effects) {
        match (self.owner(&member), &mut self.followers) {
            (Some(id), Some(followers)) => followers.send(id, &ToFollower::Evict { member }, out),
            _ => out.tell(CoordinatorEvent::MemberHung { member }),
        }
    }

    /// Answers the arrival of each candidate, by its place in the list.
    fn reply(
        &mut self,
        local: &mut LocalMembers,
        candidates: &[Candidate],
        out: &mut Effects,
        reply: impl Fn(usize) -> Reply,
    ) {
        for (place, Candidate { member, arrival }) in candidates.iter().enumerate() {
            let (member, arrival, reply) = (member.clone(), *arrival, reply(place));
            match (self.owner(&member), &mut self.followers) {
                (Some(id), Some(followers)) => {
                    followers.send(id, &ToFollower::Reply { member, arrival, reply }, out);
                }
                _ => local.reply(&member, arrival, reply, out),
            }
        }
    }

    fn owner(&self, member: &str) -> Option<u64> {
        self.followers.as_ref().and_then(|followers| followers.owner(member))
    }

    fn send_all(&mut self, message: &ToFollower, out: &mut Effects) {
        if let Some(followers) = &mut self.followers {
            followers.send_all(message, out);
        }
    }
}
