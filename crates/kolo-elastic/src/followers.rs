//! The followers of a leader: who joins, what they say, and who is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;

use crate::follower_state::{FollowerEvent, FollowerState};
use crate::launcher_protocol::{self, Hello, ToFollower, ToLeader};
use crate::launcher_view::{LauncherView, NodeLimits};
use crate::member_name::{initial_members, node_rank_of};
use crate::succession::is_deposed;
use crate::timeouts::{LAUNCHER_SILENCE, PROBE};

/// The leader says this to a follower that it has removed, should that still live.
const GONE_ON: &str = "has gone on without this launcher, which was not heard of for too long";

/// All followers, and the view that the leader keeps for them.
pub(crate) struct Followers {
    /// The leader's store, to which followers connect.
    store: Server,
    access: Access,
    limits: NodeLimits,
    pub(crate) view: LauncherView,
    /// By the ids of their launchers.
    followers: BTreeMap<u64, FollowerState>,
    last_poll: Instant,
    /// Hosts that were refused because of their token, as far as the launcher knows.
    refused: BTreeSet<IpAddr>,
}

impl Followers {
    /// The followers of a launcher that leads from the beginning of the job: none yet.
    pub(crate) fn new(store: Server, access: Access, limits: NodeLimits, view: LauncherView) -> Followers {
        let (followers, now) = (BTreeMap::new(), Instant::now());
        launcher_protocol::publish_view(&store, &view);
        Followers { store, access, limits, view, followers, last_poll: now, refused: BTreeSet::new() }
    }

    /// The followers of a launcher that takes over; they will come by themselves. `members` are those of the
    /// last generation.
    pub(crate) fn inherit(
        store: Server,
        access: Access,
        limits: NodeLimits,
        view: LauncherView,
        members: &[String],
    ) -> Followers {
        let mut inherited = Followers::new(store, access, limits, view);
        let now = inherited.last_poll;
        for launcher in inherited.view.launchers.iter().skip(1) {
            let lives_there = |member: &&String| node_rank_of(member) == Some(launcher.node_rank);
            let members = members.iter().filter(lives_there).cloned().collect();
            let follower = FollowerState::inherited(launcher.address, launcher.node_rank, members, now);
            inherited.followers.insert(launcher.id, follower);
        }
        inherited
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.followers.is_empty()
    }

    /// Whether the leader knows enough to decide: the job has begun, and all followers have told their
    /// members.
    pub(crate) fn are_ready(&self) -> bool {
        self.has_begun() && self.followers.values().all(|follower| follower.members_told)
    }

    /// Whether enough launchers have joined.
    pub(crate) fn has_begun(&self) -> bool {
        self.view.initial_nodes.is_some()
    }

    /// Hosts that were refused since the last call because of their token.
    pub(crate) fn newly_refused(&mut self) -> Vec<IpAddr> {
        let mut hosts = self.store.token_refusals();
        hosts.retain(|host| self.refused.insert(*host));
        hosts
    }

    /// Why the job does not begin: the rest of a sentence that begins with the job.
    pub(crate) fn too_few(&self, waited: Duration) -> String {
        let (needed, came) = (self.limits.min, self.view.launchers.len());
        let verb = if came == 1 { "has" } else { "have" };
        let mut reason = format!("needs {needed} nodes (--nnodes), and {came} {verb} come within {waited:?}");
        let refused: Vec<String> = self.store.token_refusals().iter().map(IpAddr::to_string).collect();
        if !refused.is_empty() {
            let hosts = refused.join(", ");
            reason += &format!(
                "; a node at {hosts} was refused because its token differs: give all nodes the same (--token-file, \
                 KOLO_TOKEN or KOLO_TOKEN_FILE)"
            );
        }
        reason
    }

    /// Takes note of the last generation that was granted, and publishes it.
    pub(crate) fn granted(&mut self, generation: u64) {
        self.view.generation = generation;
        self.view_changed();
    }

    /// Begins the job if enough launchers are there; gives the names of the workers that are started then,
    /// `own_workers` of them by the leader.
    pub(crate) fn begin_job(&mut self, own_workers: usize) -> Vec<String> {
        if !self.view.begin(self.limits) {
            return Vec::new();
        }
        self.view_changed();
        let mut started: Vec<String> =
            self.followers.values_mut().flat_map(FollowerState::start_workers).collect();
        if let Some(leader) = self.view.leader() {
            started.extend(initial_members(leader.node_rank, own_workers));
        }
        started
    }

    /// What has happened among the followers since the last call.
    pub(crate) fn poll(&mut self, now: Instant) -> Vec<FollowerEvent> {
        let mut events = Vec::new();
        if now.saturating_duration_since(std::mem::replace(&mut self.last_poll, now)) > LAUNCHER_SILENCE / 3 {
            // This launcher has been stopped itself, and what the followers have sent meanwhile is on its
            // way.
            self.followers.values_mut().for_each(|follower| follower.heard(now));
        }
        let taken = self.store.take(launcher_protocol::TO_LEADER, Duration::ZERO);
        for (id, message) in launcher_protocol::in_order(taken) {
            self.receive(id, message, now, &mut events);
        }
        let silent = self.followers.iter().filter(|(_, follower)| follower.is_silent(now));
        for id in silent.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.silent(id, &mut events);
        }
        events
    }

    fn receive(&mut self, id: u64, message: ToLeader, now: Instant, events: &mut Vec<FollowerEvent>) {
        if let ToLeader::Hello(hello) = message {
            return self.greet(id, hello, now, events);
        }
        let Some(follower) = self.followers.get_mut(&id) else { return };
        follower.heard(now);
        match message {
            ToLeader::Hello(_) | ToLeader::Heartbeat => {}
            ToLeader::MembersTold => follower.members_told = true,
            ToLeader::Member { member, event } => {
                follower.note(&member, &event);
                events.push(FollowerEvent::Member { member, event });
            }
            ToLeader::WorkDone => self.work_done(),
            ToLeader::Goodbye => self.remove(id, true, events),
            ToLeader::ConnectionLost => self.silent(id, events),
        }
    }

    /// Answers a launcher that introduces itself.
    fn greet(&mut self, id: u64, hello: Hello, now: Instant, events: &mut Vec<FollowerEvent>) {
        let Hello { address, node_rank, deferred_workers, rejoins } = hello;
        if let (Some(generations), Some(follower)) = (&rejoins, self.followers.get_mut(&id)) {
            follower.rejoined(now);
            events.push(FollowerEvent::KnownGenerations(generations.clone()));
            let node_rank = follower.node_rank;
            return self.welcome(id, node_rank);
        }
        if self.view.work_done && rejoins.is_none() {
            // The launcher begins a job of its own when nobody answers.
            return;
        }
        let admitted = match rejoins {
            Some(_) => Err(GONE_ON.into()),
            None => self.view.admit(id, address, node_rank, self.limits),
        };
        match admitted {
            Ok(node_rank) => {
                let mut follower = FollowerState::joining(address, node_rank, deferred_workers, now);
                if self.view.initial_nodes.is_some() {
                    events.extend(follower.start_workers().into_iter().map(FollowerEvent::started));
                }
                self.followers.insert(id, follower);
                self.welcome(id, node_rank);
            }
            Err(reason) => self.refuse(id, reason),
        }
    }

    fn welcome(&mut self, id: u64, node_rank: usize) {
        self.send(id, &ToFollower::Welcome { node_rank });
        self.view_changed();
    }

    /// Takes note that the work is done: no launcher may join any more.
    pub(crate) fn work_done(&mut self) {
        if !std::mem::replace(&mut self.view.work_done, true) {
            self.view_changed();
        }
    }

    /// A follower is not heard of any more, or this launcher was away and another one leads now.
    fn silent(&mut self, id: u64, events: &mut Vec<FollowerEvent>) {
        let Some(address) = self.followers.get(&id).map(|follower| follower.address) else { return };
        let its_view = launcher_protocol::probe_view(address, &self.access, PROBE);
        if its_view.is_some_and(|its_view| is_deposed(&self.view, &its_view)) {
            return events.push(FollowerEvent::Deposed { address });
        }
        self.refuse(id, GONE_ON.into());
        self.remove(id, false, events);
    }

    fn remove(&mut self, id: u64, said_so: bool, events: &mut Vec<FollowerEvent>) {
        let Some(follower) = self.followers.remove(&id) else { return };
        self.view.remove(id);
        self.view_changed();
        let members = follower.members.into_iter().collect();
        events.push(FollowerEvent::Lost { node_rank: follower.node_rank, members, said_so });
    }

    /// The follower that has started a member; `None` for the leader's own members.
    pub(crate) fn owner(&self, member: &str) -> Option<u64> {
        self.followers.iter().find(|(_, follower)| follower.members.contains(member)).map(|(id, _)| *id)
    }

    /// Sends a message to a follower that has come.
    pub(crate) fn send(&mut self, id: u64, message: &ToFollower) {
        let Some(sent) = self.followers.get_mut(&id).and_then(|follower| follower.sent.as_mut()) else {
            return;
        };
        launcher_protocol::put(&self.store, &launcher_protocol::to_follower_key(id, *sent), message);
        *sent += 1;
    }

    /// Sends a message to all followers that have come.
    pub(crate) fn send_all(&mut self, message: &ToFollower) {
        for id in self.followers.keys().copied().collect::<Vec<_>>() {
            self.send(id, message);
        }
    }

    fn refuse(&mut self, id: u64, reason: String) {
        let number = self.followers.get(&id).and_then(|follower| follower.sent).unwrap_or(0);
        let key = launcher_protocol::to_follower_key(id, number);
        launcher_protocol::put(&self.store, &key, &ToFollower::Refused { reason });
    }

    /// Tells every follower how many of these members live on other nodes than its own.
    pub(crate) fn tell_remote_members(&mut self, members: &BTreeSet<&str>) {
        let mut changed = Vec::new();
        for (id, follower) in self.followers.iter_mut().filter(|(_, follower)| follower.sent.is_some()) {
            let own = follower.members.iter().filter(|member| members.contains(member.as_str())).count();
            let count = members.len() - own;
            if follower.remote_members.replace(count) != Some(count) {
                changed.push((*id, count));
            }
        }
        for (id, count) in changed {
            self.send(id, &ToFollower::RemoteMembers { count });
        }
    }

    /// Publishes the view for launchers that come, and sends it to those that are there.
    fn view_changed(&mut self) {
        launcher_protocol::publish_view(&self.store, &self.view);
        let message = ToFollower::View(self.view.clone());
        self.send_all(&message);
    }
}
