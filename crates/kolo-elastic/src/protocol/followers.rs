//! The followers of a leader: joining, their messages, and their loss.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::context::Context;
use super::effect::{Effect, Effects};
use super::follower_state::{FollowerEvent, FollowerState, Link};
use super::missing::{list, nodes_missing};
use super::succession::is_deposed;
use crate::events::EndCause;
use crate::launcher_protocol::{ConnectionId, Hello, ToFollower, ToLeader};
use crate::launcher_view::{LauncherView, NodeLimits};
use crate::member_name::{initial_members, node_rank_of};
use crate::timeouts::launcher_silence;
use kolo_schedule::words::counted;

/// Sent to a follower that the leader has removed, in case it still lives.
const GONE_ON: &str = "has continued without this launcher, which was silent for too long";

/// All followers, and the view that the leader keeps for them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Followers {
    limits: NodeLimits,
    pub(crate) view: LauncherView,
    /// By launcher id.
    followers: BTreeMap<u64, FollowerState>,
    last_tick: Instant,
    /// Hosts that were refused because of their token.
    refused: BTreeSet<IpAddr>,
}

impl Followers {
    /// Creates the empty set of followers of a launcher that leads from the beginning of the job.
    pub(crate) fn new(limits: NodeLimits, view: LauncherView, now: Instant, out: &mut Effects) -> Followers {
        out.push(Effect::Publish(view.clone()));
        Followers { limits, view, followers: BTreeMap::new(), last_tick: now, refused: BTreeSet::new() }
    }

    /// Creates the followers of a launcher that takes over; they connect by themselves. `members`: the last
    /// generation's.
    pub(crate) fn inherit(
        limits: NodeLimits,
        view: LauncherView,
        members: &[String],
        now: Instant,
        out: &mut Effects,
    ) -> Followers {
        let mut inherited = Followers::new(limits, view, now, out);
        for launcher in inherited.view.launchers.iter().skip(1) {
            let lives_there = |member: &&String| node_rank_of(member) == Some(launcher.node_rank);
            let members = members.iter().filter(lives_there).cloned().collect();
            let follower = FollowerState::inherited(launcher.address, launcher.node_rank, members, now);
            inherited.followers.insert(launcher.id, follower);
        }
        inherited
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.followers.is_empty()
    }

    /// Returns true if the leader can decide: the job has begun, and all followers have reported their
    /// members.
    pub(crate) fn are_ready(&self) -> bool {
        self.has_begun() && self.followers.values().all(|follower| follower.members_reported)
    }

    /// Returns true if no follower starts any more members.
    pub(crate) fn are_closed(&self) -> bool {
        self.followers.values().all(|follower| follower.closed.is_some())
    }

    /// Iterates over the members of followers that end because workers have failed.
    pub(crate) fn closing_members(&self) -> impl Iterator<Item = &String> {
        let ends = |follower: &&FollowerState| follower.closed >= Some(EndCause::Failed);
        self.followers.values().filter(ends).flat_map(|follower| &follower.members)
    }

    /// Returns true if enough launchers have joined.
    pub(crate) fn has_begun(&self) -> bool {
        self.view.initial_nodes.is_some()
    }

    /// Describes the launchers that the leader waits for before it can decide.
    pub(crate) fn waits_for(&self, context: &Context) -> Option<String> {
        if !self.has_begun() {
            let came: Vec<usize> = self.view.launchers.iter().map(|launcher| launcher.node_rank).collect();
            return Some(nodes_missing(context, &came));
        }
        let silent = self.followers.values().filter(|follower| !follower.members_reported);
        let nodes: Vec<String> = silent.map(|follower| format!("node {}", follower.node_rank)).collect();
        let text = || format!("launchers have not told of their workers: {}", list(nodes.into_iter()));
        (!self.are_ready()).then(text)
    }

    /// Records a host that was refused because of its token. Returns true if the host is new.
    pub(crate) fn token_refused(&mut self, host: IpAddr) -> bool {
        self.refused.insert(host)
    }

    /// Describes why the job does not begin; the text completes a sentence that begins with the job.
    pub(crate) fn too_few(&self, waited: Duration) -> String {
        let (needed, came) = (self.limits.min, self.view.launchers.len());
        let verb = if came == 1 { "has" } else { "have" };
        let mut reason =
            format!("needs {} (--nnodes), and {came} {verb} come within {waited:?}", counted(needed, "node"));
        let refused: Vec<String> = self.refused.iter().map(IpAddr::to_string).collect();
        if !refused.is_empty() {
            let hosts = refused.join(", ");
            reason += &format!(
                "; a node at {hosts} was refused because its token differs: give all nodes the same (--token-file, \
                 KOLO_TOKEN or KOLO_TOKEN_FILE)"
            );
        }
        reason
    }

    /// Records the last granted generation, and publishes it.
    pub(crate) fn granted(&mut self, generation: u64, out: &mut Effects) {
        self.view.generation = generation;
        self.view_changed(out);
    }

    /// Begins the job if enough launchers have joined. Returns the names of the workers that start then,
    /// `own_workers` of them on the leader's node.
    pub(crate) fn begin_job(&mut self, own_workers: usize, out: &mut Effects) -> Vec<String> {
        if !self.view.begin(self.limits) {
            return Vec::new();
        }
        self.view_changed(out);
        let mut started: Vec<String> =
            self.followers.values_mut().flat_map(FollowerState::start_workers).collect();
        if let Some(leader) = self.view.leader() {
            started.extend(initial_members(leader.node_rank, own_workers));
        }
        started
    }

    pub(crate) fn probe_the_silent(&mut self, now: Instant, out: &mut Effects) {
        if now.saturating_duration_since(std::mem::replace(&mut self.last_tick, now)) > launcher_silence() / 3
        {
            // This launcher itself was stopped, and the followers' messages are still on their way.
            self.followers.values_mut().for_each(|follower| follower.seen(now));
        }
        let silent = self.followers.iter().filter(|(_, follower)| follower.is_silent(now));
        for id in silent.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.probe(id, out);
        }
    }

    /// Handles a message of a launcher. Returns the events that follow.
    pub(crate) fn receive(
        &mut self,
        connection: ConnectionId,
        message: ToLeader,
        now: Instant,
        out: &mut Effects,
    ) -> Vec<FollowerEvent> {
        let id = connection.launcher;
        if let ToLeader::Hello(hello) = message {
            return self.greet(connection, hello, now, out);
        }
        let follower = self.followers.get_mut(&id).filter(|follower| follower.came_by(connection));
        let Some(follower) = follower else { return Vec::new() };
        follower.seen(now);
        match message {
            ToLeader::Hello(_) | ToLeader::Heartbeat => {}
            ToLeader::MembersTold => follower.members_reported = true,
            ToLeader::Closed(cause) => follower.closed = follower.closed.max(Some(cause)),
            ToLeader::Member { member, event } => {
                follower.record(&member, &event);
                return vec![FollowerEvent::Member { member, event }];
            }
            ToLeader::WorkDone => self.work_done(out),
            ToLeader::Goodbye => return self.remove(id, true, out),
            ToLeader::ConnectionLost => self.probe(id, out),
        }
        Vec::new()
    }

    /// Answers a launcher that introduces itself.
    fn greet(
        &mut self,
        connection: ConnectionId,
        hello: Hello,
        now: Instant,
        out: &mut Effects,
    ) -> Vec<FollowerEvent> {
        let id = connection.launcher;
        if self.followers.get(&id).is_some_and(|follower| follower.came_after(connection)) {
            // The launcher has given up that connection.
            return Vec::new();
        }
        let Hello { address, node_rank, deferred_workers, rejoins, left } = hello;
        if let (Some(generations), Some(follower)) = (&rejoins, self.followers.get_mut(&id)) {
            follower.rejoined(connection, now);
            follower.left = left;
            let (known, node_rank) = (generations.clone(), follower.node_rank);
            self.welcome(id, node_rank, out);
            return vec![FollowerEvent::CameBack { id, generations: known }];
        }
        if self.view.work_done && rejoins.is_none() {
            // Without an answer, the launcher begins a job of its own.
            return Vec::new();
        }
        let admitted = match rejoins {
            Some(_) => Err(GONE_ON.into()),
            None => self.view.admit(id, address, node_rank, self.limits),
        };
        match admitted {
            Ok(node_rank) => {
                let mut follower =
                    FollowerState::joining(connection, address, node_rank, deferred_workers, now);
                let started = match self.has_begun() {
                    true => follower.start_workers(),
                    false => Vec::new(),
                };
                self.followers.insert(id, follower);
                self.welcome(id, node_rank, out);
                started.into_iter().map(FollowerEvent::started).collect()
            }
            Err(reason) => {
                let message = ToFollower::Refused { reason };
                out.push(Effect::ToFollower { connection, number: 0, message });
                Vec::new()
            }
        }
    }

    fn welcome(&mut self, id: u64, node_rank: usize, out: &mut Effects) {
        self.send(id, &ToFollower::Welcome { node_rank }, out);
        self.view_changed(out);
    }

    /// Records that the work is done: no launcher may join any more.
    pub(crate) fn work_done(&mut self, out: &mut Effects) {
        if !std::mem::replace(&mut self.view.work_done, true) {
            self.view_changed(out);
        }
    }

    /// Asks a follower for its view: it is silent, or this launcher was away and another one leads now.
    fn probe(&mut self, id: u64, out: &mut Effects) {
        if let Some(follower) = self.followers.get_mut(&id)
            && !std::mem::replace(&mut follower.is_probed, true)
        {
            let (address, connection) = (follower.address, follower.connection());
            out.push(Effect::Probe { launcher: id, address, connection });
        }
    }

    /// Handles the view of a probed follower. A follower whose connection has ended, and whose view shows
    /// that it still follows, will reconnect.
    pub(crate) fn probed(
        &mut self,
        id: u64,
        connection: u64,
        its_view: Option<LauncherView>,
        now: Instant,
        out: &mut Effects,
    ) -> Vec<FollowerEvent> {
        // A follower that has reconnected meanwhile is not lost.
        let follower = self.followers.get_mut(&id).filter(|follower| follower.connection() == connection);
        let Some(follower) = follower else { return Vec::new() };
        if its_view.as_ref().is_some_and(|its_view| is_deposed(&self.view, its_view)) {
            return vec![FollowerEvent::Deposed { address: follower.address }];
        }
        let leads = |view: &LauncherView| Some((view.job_id, view.leader()?.id));
        let follows = its_view.is_some_and(|its_view| leads(&its_view) == leads(&self.view));
        if follows && !follower.is_silent(now) {
            follower.is_probed = false;
            return Vec::new();
        }
        self.send(id, &ToFollower::Refused { reason: GONE_ON.into() }, out);
        self.remove(id, false, out)
    }

    fn remove(&mut self, id: u64, said_goodbye: bool, out: &mut Effects) -> Vec<FollowerEvent> {
        let Some(follower) = self.followers.remove(&id) else { return Vec::new() };
        self.view.remove(id);
        self.view_changed(out);
        let (node_rank, members) = (follower.node_rank, follower.members.into_iter().collect());
        vec![FollowerEvent::Lost { node_rank, members, said_goodbye }]
    }

    pub(crate) fn left_by(&self, id: u64) -> Option<&BTreeSet<u64>> {
        self.followers.get(&id).map(|follower| &follower.left)
    }

    /// Returns the follower that has started a member; `None` for the leader's own members.
    pub(crate) fn owner(&self, member: &str) -> Option<u64> {
        self.followers.iter().find(|(_, follower)| follower.members.contains(member)).map(|(id, _)| *id)
    }

    /// Sends a message to a follower that has connected.
    pub(crate) fn send(&mut self, id: u64, message: &ToFollower, out: &mut Effects) {
        let link = self.followers.get_mut(&id).and_then(|follower| follower.link.as_mut());
        let Some(Link { connection, sent }) = link else { return };
        out.push(Effect::ToFollower { connection: *connection, number: *sent, message: message.clone() });
        *sent += 1;
    }

    /// Sends a message to all followers that have connected.
    pub(crate) fn send_all(&mut self, message: &ToFollower, out: &mut Effects) {
        for id in self.followers.keys().copied().collect::<Vec<_>>() {
            self.send(id, message, out);
        }
    }

    /// Sends every follower the number of these members on nodes other than its own.
    pub(crate) fn send_remote_members(&mut self, members: &BTreeSet<&str>, out: &mut Effects) {
        let mut changed = Vec::new();
        for (id, follower) in self.followers.iter_mut().filter(|(_, follower)| follower.link.is_some()) {
            let own = follower.members.iter().filter(|member| members.contains(member.as_str())).count();
            let count = members.len() - own;
            if follower.remote_members.replace(count) != Some(count) {
                changed.push((*id, count));
            }
        }
        for (id, count) in changed {
            self.send(id, &ToFollower::RemoteMembers { count }, out);
        }
    }

    /// Publishes the view for launchers that join, and sends it to all followers.
    fn view_changed(&mut self, out: &mut Effects) {
        out.push(Effect::Publish(self.view.clone()));
        let message = ToFollower::View(self.view.clone());
        self.send_all(&message, out);
    }
}
