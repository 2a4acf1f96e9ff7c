//! The leader of a job: the coordinator that hears of the members of all nodes, decides about them, and
//! serves the generations.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;
use kolo_schedule::Rank;

use crate::context::Context;
use crate::events::{CoordinatorEvent, MemberEvent, MemberExit};
use crate::follower_state::FollowerEvent;
use crate::followers::Followers;
use crate::launcher_protocol::{Formed, ToFollower};
use crate::local_members::LocalMembers;
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
    /// When the leader gave up to wait for more launchers, and what it has told those that came.
    given_up: Option<(Instant, String)>,
}

/// A leader that gives up stays so long, until its followers have heard it.
const FAREWELL: Duration = Duration::from_millis(200);

impl Leader {
    /// The leader of a job that begins.
    pub(crate) fn new(
        policy: MembershipPolicy,
        access: Access,
        ip: IpAddr,
        followers: Option<Followers>,
        deferred_workers: usize,
    ) -> Leader {
        let workers = WorkerSet::new(policy, Instant::now());
        Leader {
            policy,
            access,
            ip,
            workers,
            store: None,
            followers,
            deferred_workers,
            closed: false,
            last_reason: String::new(),
            given_up: None,
        }
    }

    /// The leader of a job that another launcher has led until now.
    pub(crate) fn take_over(
        policy: MembershipPolicy,
        access: Access,
        ip: IpAddr,
        followers: Followers,
        local: &LocalMembers,
    ) -> Leader {
        let now = Instant::now();
        let Formed { generation, members, .. } = &local.formed;
        let mut workers =
            WorkerSet::resume(policy, *generation, members, "the leading launcher was lost", now);
        let nodes: BTreeSet<usize> =
            followers.view.launchers.iter().map(|launcher| launcher.node_rank).collect();
        for member in members {
            let node_rank = node_rank_of(member);
            if node_rank.is_none_or(|rank| !nodes.contains(&rank)) {
                workers.exited(member, Some("was lost with its launcher"), now);
            }
            // Of this node's members the new leader knows more than the last one.
            if node_rank == local.node_rank && !local.contains(member) {
                workers.exited(member, None, now);
            }
        }
        let mut leader = Leader { workers, ..Leader::new(policy, access, ip, Some(followers), 0) };
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
            MemberEvent::Exited(exit) => self.exited(member, &exit),
        }
    }

    fn arrived(&mut self, member: &str, arrival: Arrival) {
        let Arrival { number, reason, rejoin_timeout_ms, has_state, server } = arrival;
        self.workers.arrived(member, number, reason, Instant::now());
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
    /// This launcher must not lead any more; the text is the reason.
    pub(crate) fn tick(&mut self, context: &Context, local: &mut LocalMembers) -> Result<(), String> {
        let now = Instant::now();
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
                return self.give_up(context, now);
            }
        }
        self.count_remote_members(local);
        // Other launchers may start more workers.
        if self.closed && self.followers.as_ref().is_none_or(Followers::is_empty) {
            self.workers.close();
        }
        if self.followers.as_ref().is_none_or(Followers::are_ready) {
            let decision = self.workers.decide(now);
            self.workers.apply(&decision, now);
            self.act(decision, local);
        }
        Ok(())
    }

    /// Tells the followers that the job does not begin, and ends when they have had the time to hear it.
    fn give_up(&mut self, context: &Context, now: Instant) -> Result<(), String> {
        let Some(followers) = &mut self.followers else { return Ok(()) };
        let waited = context.start_timeout;
        let (since, reason) = self.given_up.get_or_insert_with(|| (now, followers.give_up(waited)));
        if now < *since + FAREWELL { Ok(()) } else { Err(format!("it {reason}")) }
    }

    fn follower_event(&mut self, event: FollowerEvent) -> Result<(), String> {
        match event {
            FollowerEvent::Member { member, event } => self.member_event(&member, event),
            FollowerEvent::KnownGeneration(generation) => self.workers.catch_up(generation),
            FollowerEvent::Lost { node_rank, members } => {
                log::info!("the launcher of node {node_rank} has gone, with {} members", members.len());
                let exit = MemberExit::Failed("was lost with its launcher".into());
                members.iter().for_each(|member| self.exited(member, &exit));
            }
            FollowerEvent::Deposed { address } => {
                let gone_on = "the others have gone on without this launcher";
                return Err(format!("{gone_on}; the one at {address} leads now"));
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

    fn act(&mut self, decision: Decision, local: &mut LocalMembers) {
        let Decision { action, reason } = decision;
        if self.last_reason != reason {
            log::debug!("{reason}: {action:?}");
            self.last_reason.clone_from(&reason);
        }
        match action {
            Action::Wait | Action::EndGeneration => {}
            Action::FormGeneration(candidates) => self.form_generation(local, &candidates, reason),
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

    fn form_generation(&mut self, local: &mut LocalMembers, candidates: &[Candidate], reason: String) {
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
        let members: Vec<String> = candidates.iter().map(|candidate| candidate.member.clone()).collect();
        // Followers hear of the generation before its members do: whoever leads next must know where its
        // members are.
        let formed = Formed { generation, members, reason: reason.clone() };
        self.send_all(&ToFollower::Formed(formed.clone()));
        local.generation_formed(formed);
        self.reply(local, candidates, |rank| {
            let node = node_of(&candidates[rank].member);
            let local_rank = candidates[..rank].iter().filter(|other| node_of(&other.member) == node).count();
            let (world_size, reason) = (candidates.len(), reason.clone());
            Reply::Assigned(Assignment { generation, rank, world_size, local_rank, store: address, reason })
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
