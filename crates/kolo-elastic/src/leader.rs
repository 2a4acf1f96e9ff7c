//! The leader of a job: the coordinator that hears of the members of all nodes, decides about them, and
//! serves the generations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;
use kolo_schedule::Rank;

use crate::arbiter::Claim;
use crate::claims::{Claimed, Claims};
use crate::context::Context;
use crate::events::{CoordinatorEvent, MemberEvent, MemberExit};
use crate::follower_state::FollowerEvent;
use crate::followers::Followers;
use crate::generation::{Formed, GenerationId, History, identity};
use crate::launcher_protocol::ToFollower;
use crate::lineage::Lineage;
use crate::local_members::{Detached, LocalMembers};
use crate::member_name::{node_of, node_rank_of};
use crate::worker_protocol::{Arrival, Assignment, Reply};
use crate::worker_set::{Action, Candidate, Decision, MembershipPolicy, WorkerSet};

/// The leader's part of a coordinator.
pub(crate) struct Leader {
    policy: MembershipPolicy,
    access: Access,
    /// This host, as members on all nodes reach the stores of generations.
    ip: IpAddr,
    workers: WorkerSet,
    /// The generations that the next one may follow.
    lineage: Lineage,
    claims: Claims,
    /// What tells members that have arrived from other processes of their names.
    identities: BTreeMap<String, String>,
    /// The store of the running generation.
    store: Option<Server>,
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

/// A leader that gives up or ends stays so long, until its followers have heard it.
const FAREWELL: Duration = Duration::from_millis(200);

impl Leader {
    /// The leader of a job that begins.
    pub(crate) fn new(context: &Context, ip: IpAddr, followers: Option<Followers>) -> Leader {
        let policy = context.policy;
        Leader {
            policy,
            access: context.access.clone(),
            ip,
            workers: WorkerSet::new(policy, Instant::now()),
            lineage: Lineage::default(),
            claims: Claims::new(context.arbiter.clone(), policy.too_few_timeout),
            identities: BTreeMap::new(),
            store: None,
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
        ip: IpAddr,
        followers: Followers,
        local: &LocalMembers,
    ) -> Leader {
        let (now, policy) = (Instant::now(), context.policy);
        let mut workers = WorkerSet::resume(policy, &local.formed, "the leading launcher was lost", now);
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
        let begun = Leader::new(context, ip, Some(followers));
        let mut leader = Leader { workers, lineage, identities, deferred_workers: 0, ..begun };
        leader.meet_local_members(local);
        leader
    }

    /// Learns of the members of this node that have come before it led.
    pub(crate) fn meet_local_members(&mut self, local: &LocalMembers) {
        for (member, unanswered) in &local.unanswered {
            self.workers.started(member);
            unanswered.iter().for_each(|arrival| self.arrived(member, arrival.clone()));
        }
    }

    /// Takes note of what has happened to a member of any node.
    pub(crate) fn member_event(&mut self, member: &str, event: MemberEvent) {
        match event {
            MemberEvent::Started => self.workers.started(member),
            MemberEvent::Arrived(arrival) => self.arrived(member, arrival),
            MemberEvent::CpuTime(total) => self.workers.took_cpu_time(member, total, Instant::now()),
            MemberEvent::Exited(exit) => {
                self.has_ended(member);
                self.exited(member, &exit);
            }
        }
    }

    fn arrived(&mut self, member: &str, arrival: Arrival) {
        let Arrival { number, reason, rejoin_timeout_ms, has_state, server, incarnation, history } = arrival;
        self.lineage.heard(&history);
        self.identities.insert(member.into(), identity(member, incarnation));
        self.workers.arrived(member, number, reason, Instant::now());
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
    fn exited(&mut self, member: &str, exit: &MemberExit) {
        let failure = match exit {
            MemberExit::Clean => None,
            MemberExit::Failed(how) => Some(how.as_str()),
        };
        let rank = self.workers.exited(member, failure, Instant::now());
        if let (Some(rank), Some(_), Some(store)) = (rank, failure, &self.store) {
            store.fail(Error::Died { rank: Rank(rank) });
        }
    }

    /// Whether all members of the last generation have ended well.
    pub(crate) fn is_finished(&self) -> bool {
        self.workers.is_finished()
    }

    /// No more workers will be started on this node.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Hears the followers, and does what follows from all that is known now.
    ///
    /// # Errors
    ///
    /// This launcher must not lead any more.
    pub(crate) fn tick(&mut self, context: &Context, local: &mut LocalMembers) -> Result<(), Detached> {
        let now = Instant::now();
        if let Some((since, reason)) = &self.given_up {
            return if now < *since + FAREWELL { Ok(()) } else { Err(reason.clone()) };
        }
        let events = self.followers.as_mut().map_or_else(Vec::new, |followers| followers.poll(now));
        events.into_iter().try_for_each(|event| self.follower_event(event))?;
        if let Some(followers) = &mut self.followers {
            let started = followers.begin_job(self.deferred_workers);
            started.iter().for_each(|member| self.workers.started(member));
            local.initial_nodes = followers.view.initial_nodes;
            for host in followers.newly_refused() {
                local.tell_launcher(CoordinatorEvent::LauncherRefused { host });
            }
            if !followers.has_begun() && now >= context.begins_by {
                let reason = followers.too_few(context.start_timeout);
                self.send_all(&ToFollower::Refused { reason: reason.clone() });
                self.given_up = Some((now, format!("it {reason}").into()));
                return Ok(());
            }
        }
        self.count_remote_members(local);
        // Other launchers may start more workers.
        if self.closed && self.followers.as_ref().is_none_or(Followers::is_empty) {
            self.workers.close();
        }
        if self.followers.as_ref().is_none_or(Followers::are_ready) {
            let decision = self.workers.decide(now);
            if let Action::FormGeneration(candidates) = &decision.action
                && !self.is_granted(context, candidates, now)
            {
                self.claims.news().into_iter().for_each(|news| local.warn(news));
                return Ok(());
            }
            self.workers.apply(&decision, now);
            self.act(decision, context, local);
        }
        Ok(())
    }

    /// Claims the next generation for these members; gives whether it may be formed now. Where another leader
    /// goes on, or may, this one gives up.
    fn is_granted(&mut self, context: &Context, candidates: &[Candidate], now: Instant) -> bool {
        let claim = Claim {
            job: self.followers.as_ref().map_or(context.launcher_id, |followers| followers.view.job_id),
            leader: context.launcher_id,
            place: context.place.clone(),
            newest: self.lineage.newest().max(self.workers.generation()),
            members: self.identities_of(candidates),
            left: self.workers.histories(candidates).flat_map(History::all).collect(),
            told: self.lineage.generations().iter().map(Formed::id).collect(),
            predecessors: self.lineage.predecessors(self.workers.histories(candidates)),
        };
        match self.claims.claim(&claim, now) {
            Claimed::Granted(number) => {
                self.workers.granted(number);
                true
            }
            Claimed::Waits => false,
            Claimed::Refused(reason) => {
                self.send_all(&ToFollower::Superseded { reason: reason.clone() });
                self.given_up = Some((now, Detached { reason, superseded: true }));
                false
            }
        }
    }

    fn identities_of(&self, candidates: &[Candidate]) -> Vec<String> {
        let known = candidates.iter().filter_map(|candidate| self.identities.get(&candidate.member));
        known.cloned().collect()
    }

    /// Tells the followers that this launcher ends, and its members have; returns when they have had the time
    /// to hear it.
    pub(crate) fn say_goodbye(&mut self, local: &LocalMembers) {
        if self.followers.as_ref().is_some_and(|followers| !followers.is_empty()) {
            let ended = self.lineage.dead().chain(local.identities.values()).cloned().collect();
            self.send_all(&ToFollower::Goodbye { ended });
            std::thread::sleep(FAREWELL);
        }
    }

    fn follower_event(&mut self, event: FollowerEvent) -> Result<(), Detached> {
        match event {
            FollowerEvent::Member { member, event } => self.member_event(&member, event),
            FollowerEvent::KnownGenerations(generations) => {
                for formed in &generations {
                    self.lineage.told(formed);
                    self.workers.has_been(formed);
                }
            }
            FollowerEvent::Lost { node_rank, members, said_so } => {
                log::info!("the launcher of node {node_rank} has gone, with {} members", members.len());
                let exit = MemberExit::Failed("was lost with its launcher".into());
                for member in &members {
                    if said_so {
                        self.has_ended(member);
                    }
                    self.exited(member, &exit);
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

    fn count_remote_members(&mut self, local: &mut LocalMembers) {
        let Some(followers) = &mut self.followers else { return };
        let members: BTreeSet<&str> = self.workers.members().collect();
        local.remote_members = members.iter().filter(|member| !local.contains(member)).count();
        followers.tell_remote_members(&members);
    }

    fn act(&mut self, decision: Decision, context: &Context, local: &mut LocalMembers) {
        let Decision { action, reason } = decision;
        if self.last_reason != reason {
            log::debug!("{reason}: {action:?}");
            self.last_reason.clone_from(&reason);
        }
        match action {
            Action::Wait | Action::EndGeneration => {}
            Action::FormGeneration(candidates) => {
                self.form_generation(context.launcher_id, local, &candidates, reason);
            }
            Action::RequestRegroup => {
                let generation = self.workers.generation();
                local.request_regroup(generation);
                self.send_all(&ToFollower::RequestRegroup { generation });
            }
            Action::Evict(members) => members.into_iter().for_each(|member| self.evict(local, member)),
            Action::GiveUp { candidates, present, waited } => {
                let min = self.policy.min_members;
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                self.reply(local, &candidates, |rank| Reply::TooFew {
                    present,
                    min,
                    waited_ms,
                    first: rank == 0,
                });
                local.tell_launcher(CoordinatorEvent::TooFewMembers { present });
                self.send_all(&ToFollower::TooFewMembers { present });
            }
            Action::ReportStateLost(candidates) => self.reply(local, &candidates, |_| Reply::StateLost),
        }
    }

    fn form_generation(
        &mut self,
        leader: u64,
        local: &mut LocalMembers,
        candidates: &[Candidate],
        reason: String,
    ) {
        let (address, server) = match self.serve_generation(candidates.len()) {
            Ok(served) => served,
            Err(error) => {
                local.warn(format!("no generation can be formed: {error}"));
                return self.reply(local, candidates, |_| Reply::Failed { reason: error.to_string() });
            }
        };
        // The last generation's store is dropped: none of its members is left in it.
        self.store = Some(server);
        let generation = self.workers.generation();
        let id = GenerationId { number: generation, leader };
        let members: Vec<String> = candidates.iter().map(|candidate| candidate.member.clone()).collect();
        // Followers hear of the generation before its members do: whoever leads next must know where its
        // members are.
        let state_held = self.workers.state_was_held();
        let identities = self.identities_of(candidates);
        let formed = Formed { generation, leader, members, identities, reason: reason.clone(), state_held };
        self.lineage.told(&formed);
        self.followers.iter_mut().for_each(|followers| followers.granted(generation));
        self.send_all(&ToFollower::Formed(formed.clone()));
        local.generation_formed(formed);
        self.reply(local, candidates, |rank| {
            let node = node_of(&candidates[rank].member);
            let local_rank = candidates[..rank].iter().filter(|other| node_of(&other.member) == node).count();
            let (world_size, reason) = (candidates.len(), reason.clone());
            let store = address;
            Reply::Assigned(Assignment { generation: id, rank, world_size, local_rank, store, reason })
        });
    }

    /// Starts the store of a generation; gives the address at which members on all nodes reach it.
    fn serve_generation(&self, world_size: usize) -> Result<(SocketAddr, Server), Error> {
        let server = Server::start((self.ip, 0).into(), world_size, &self.access)?;
        let bound = server.address().map_err(|cause| Error::system("cannot read an address", cause))?;
        Ok(((self.ip, bound.port()).into(), server))
    }

    /// Has a member killed by the launcher that has started it.
    fn evict(&mut self, local: &LocalMembers, member: String) {
        match self.owner(&member) {
            Some(id) => self.send(id, &ToFollower::Evict { member }),
            None => local.tell_launcher(CoordinatorEvent::MemberHung { member }),
        }
    }

    /// Answers the arrival of each candidate, by its place in the list.
    fn reply(&mut self, local: &mut LocalMembers, candidates: &[Candidate], reply: impl Fn(usize) -> Reply) {
        for (place, Candidate { member, arrival }) in candidates.iter().enumerate() {
            let (member, arrival, reply) = (member.clone(), *arrival, reply(place));
            match self.owner(&member) {
                Some(id) => self.send(id, &ToFollower::Reply { member, arrival, reply }),
                None => local.reply(&member, arrival, &reply),
            }
        }
    }

    fn owner(&self, member: &str) -> Option<u64> {
        self.followers.as_ref().and_then(|followers| followers.owner(member))
    }

    fn send(&mut self, id: u64, message: &ToFollower) {
        if let Some(followers) = &mut self.followers {
            followers.send(id, message);
        }
    }

    fn send_all(&mut self, message: &ToFollower) {
        if let Some(followers) = &mut self.followers {
            followers.send_all(message);
        }
    }
}
