//! The connections between launchers: they deliver in order, break, and are made again.

use std::collections::VecDeque;

use super::state::{Connection, Ended, Life, State, address_of, launcher_at};
use super::{Actor, Job};
use crate::launcher_protocol::{ConnectionId, Hello, ToFollower, ToLeader};
use crate::launcher_view::LauncherView;
use crate::protocol::{Event, Found, Role};

impl State {
    /// Closes the follower's connection; messages that it has sent may still arrive.
    pub(super) fn disconnect(&mut self, follower: Actor) {
        if let Some(Connection { id, leader, sent, broken: false, .. }) =
            self.launchers[follower].leader.take()
        {
            self.ends(id, leader, sent);
        }
    }

    fn ends(&mut self, id: ConnectionId, leader: Actor, mut sent: VecDeque<ToLeader>) {
        sent.push_back(ToLeader::ConnectionLost);
        self.ended.push(Ended { id, leader, sent });
    }

    /// Closes a launcher's store, with all connections to it.
    pub(super) fn leave(&mut self, own: Actor) {
        self.disconnect(own);
        let launcher = &mut self.launchers[own];
        (launcher.serves, launcher.shows) = (false, None);
        launcher.to_followers.clear();
        launcher.to_leader.clear();
        self.ended.retain(|ended| ended.leader != own);
        for follower in &mut self.launchers {
            let leader = follower.leader.as_mut().filter(|connection| connection.leader == own);
            leader.into_iter().for_each(|connection| connection.broken = true);
        }
    }

    /// Returns the leader that a searching launcher would join now, with its view.
    pub(super) fn to_join(&self, own: Actor) -> Option<(Actor, LauncherView)> {
        let launcher = &self.launchers[own];
        if launcher.life != Life::Runs
            || launcher.state.role != Role::Discovering
            || launcher.leader.is_some()
        {
            return None;
        }
        let seen = |other: &Actor| self.runs(*other) && self.reaches(own, *other);
        let views = (0..self.launchers.len()).filter(seen).filter_map(|it| self.launchers[it].shows.clone());
        let open = views.filter(|view| !view.work_done);
        let mut leaders = open.filter_map(|view| Some((launcher_at(view.leader()?.address), view)));
        leaders.find(|(leader, _)| seen(leader) && self.launchers[*leader].serves)
    }

    pub(super) fn join(&mut self, own: Actor) {
        let Some((leader, view)) = self.to_join(own) else { return };
        let (address, node_rank) = (address_of(own), Some(own));
        let hello =
            Hello { address, node_rank, deferred_workers: 0, rejoins: None, left: Default::default() };
        self.launchers[own].serves = true;
        self.connect(own, leader, hello, Some(view));
    }

    pub(super) fn connect(&mut self, own: Actor, leader: Actor, hello: Hello, joins: Option<LauncherView>) {
        let (since, launcher) = (self.clock, &mut self.launchers[own]);
        let sent = VecDeque::from([ToLeader::Hello(hello)]);
        launcher.connections += 1;
        let id = ConnectionId { launcher: own as u64, number: launcher.connections };
        launcher.leader = Some(Connection { id, leader, sent, next: 0, joins, broken: false, since });
    }

    /// Delivers a follower's next message to its leader.
    pub(super) fn deliver(&mut self, job: &Job, follower: Actor) {
        let Some(connection) = &mut self.launchers[follower].leader else { return };
        let (id, leader) = (connection.id, connection.leader);
        if let Some(message) = connection.sent.pop_front() {
            self.comes(job, id, leader, message);
        }
    }

    pub(super) fn deliver_ended(&mut self, job: &Job, ended: usize) {
        let Ended { id, leader, mut sent } = self.ended.remove(ended);
        if !self.reaches(id.launcher as Actor, leader) {
            sent.drain(..sent.len() - 1);
        }
        let Some(message) = sent.pop_front() else { return };
        if !sent.is_empty() {
            self.ended.insert(ended, Ended { id, leader, sent });
        }
        self.comes(job, id, leader, message);
    }

    fn comes(&mut self, job: &Job, connection: ConnectionId, leader: Actor, message: ToLeader) {
        match self.leads(leader) {
            true => self.receive(job, leader, Event::FromFollower { connection, message }),
            false => self.launchers[leader].to_leader.push((connection, message)),
        }
    }

    /// Returns the leader's next message for a follower, if there is one.
    pub(super) fn for_follower(&self, follower: Actor) -> Option<&ToFollower> {
        let Connection { id, leader, next, .. } = self.launchers[follower].leader.as_ref()?;
        self.launchers[*leader].to_followers.get(&(*id, *next))
    }

    /// Lets a follower take the next message of its leader.
    pub(super) fn take(&mut self, job: &Job, follower: Actor) {
        let Some(connection) = &mut self.launchers[follower].leader else { return };
        let (id, leader, number) = (connection.id, connection.leader, connection.next);
        let joins = connection.joins.clone();
        connection.next += 1;
        let Some(message) = self.launchers[leader].to_followers.remove(&(id, number)) else { return };
        if number > 0 {
            return self.receive(job, follower, Event::FromLeader(message));
        }
        // The first message answers the follower's Hello.
        let event = match (message, joins) {
            (ToFollower::Welcome { node_rank }, Some(view)) => {
                let found =
                    Found { address: address_of(follower), node_rank, view: view.clone(), leads: false };
                self.launchers[follower].shows = Some(view);
                Event::Found(found)
            }
            (ToFollower::Welcome { .. }, None) => Event::Welcomed,
            (ToFollower::Refused { reason }, Some(_)) => Event::NotFound { reason, for_all: false },
            (ToFollower::Refused { reason }, None) => Event::RefusedByLeader { why: reason },
            (other, _) => Event::LeaderLost { why: format!("{other:?} is no answer") },
        };
        if !matches!(event, Event::Found(_) | Event::Welcomed) {
            self.disconnect(follower);
        }
        self.receive(job, follower, event);
    }

    /// Breaks a connection; with `lost`, messages on their way to the leader never arrive.
    pub(super) fn breaks(&mut self, follower: Actor, lost: bool) {
        let Some(connection) = &mut self.launchers[follower].leader else { return };
        connection.broken = true;
        let (id, leader) = (connection.id, connection.leader);
        let mut sent = std::mem::take(&mut connection.sent);
        if lost {
            sent.clear();
        }
        self.ends(id, leader, sent);
    }

    /// Lets a follower notice that its leader is lost, or assume so.
    pub(super) fn notices(&mut self, job: &Job, follower: Actor) {
        let Some(connection) = &self.launchers[follower].leader else { return };
        if connection.joins.is_some() && connection.next == 0 {
            // The launcher looks for the job again.
            return self.disconnect(follower);
        }
        self.disconnect(follower);
        self.receive(job, follower, Event::LeaderLost { why: "it is lost".into() });
    }

    pub(super) fn can_connect(&self, own: Actor, leader: Actor) -> bool {
        self.runs(leader) && self.reaches(own, leader) && self.launchers[leader].serves
    }

    /// Delivers a follower's heartbeat, unless something delays it.
    pub(super) fn heartbeat(&mut self, job: &Job, follower: Actor) {
        let Some(connection) = &self.launchers[follower].leader else { return };
        let leader = connection.leader;
        let flows = connection.sent.is_empty() && connection.next > 0 && !connection.broken;
        if flows && self.runs(follower) && self.runs(leader) && self.reaches(follower, leader) {
            let (connection, message) = (connection.id, ToLeader::Heartbeat);
            self.handle(job, leader, Event::FromFollower { connection, message });
        }
    }
}
