//! The leader's record of one follower, and the events that a follower causes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use crate::events::{EndCause, MemberEvent};
use crate::generation::Formed;
use crate::launcher_protocol::ConnectionId;
use crate::member_name::initial_members;
use crate::timeouts::launcher_silence;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FollowerState {
    pub(crate) address: SocketAddr,
    pub(crate) node_rank: usize,
    /// Number of workers that the follower starts when the job begins.
    deferred_workers: usize,
    /// Names of its members that have started and have not ended.
    pub(crate) members: BTreeSet<String>,
    /// True once the follower has reported everything that it knew about its members when it connected.
    pub(crate) members_reported: bool,
    /// The cause for which the follower starts no more members; `None` while it may.
    pub(crate) closed: Option<EndCause>,
    /// Leaders that the follower has left for good.
    pub(crate) left: BTreeSet<u64>,
    /// The connection for messages to the follower; `None` until it has connected to this leader.
    pub(crate) link: Option<Link>,
    last_seen: Instant,
    /// True while the leader probes whether the follower follows another launcher now, because the follower
    /// has been silent or its connection has ended.
    pub(crate) is_probed: bool,
    /// Number of remote members that the leader has last sent to the follower.
    pub(crate) remote_members: Option<usize>,
}

/// A follower's connection, as its leader uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) connection: ConnectionId,
    pub(crate) sent: u64,
}

impl Link {
    fn new(connection: ConnectionId) -> Option<Link> {
        Some(Link { connection, sent: 0 })
    }
}

impl FollowerState {
    pub(crate) fn joining(
        connection: ConnectionId,
        address: SocketAddr,
        node_rank: usize,
        deferred_workers: usize,
        now: Instant,
    ) -> FollowerState {
        FollowerState {
            address,
            node_rank,
            deferred_workers,
            members: BTreeSet::new(),
            members_reported: false,
            closed: None,
            left: BTreeSet::new(),
            link: Link::new(connection),
            last_seen: now,
            is_probed: false,
            remote_members: None,
        }
    }

    /// A follower of the last leader, with its members, which will connect to this leader by itself. It may
    /// notice later than this leader that the last one is lost.
    pub(crate) fn inherited(
        address: SocketAddr,
        node_rank: usize,
        members: BTreeSet<String>,
        now: Instant,
    ) -> FollowerState {
        FollowerState {
            address,
            node_rank,
            deferred_workers: 0,
            members,
            members_reported: false,
            closed: None,
            left: BTreeSet::new(),
            link: None,
            last_seen: now + launcher_silence(),
            is_probed: false,
            remote_members: None,
        }
    }

    /// Records that the follower has reconnected, or has connected to a leader that took over.
    pub(crate) fn rejoined(&mut self, connection: ConnectionId, now: Instant) {
        (self.last_seen, self.link) = (now, Link::new(connection));
        (self.members_reported, self.is_probed, self.remote_members) = (false, false, None);
    }

    /// Number of the connection by which the follower came; 0 before it came.
    pub(crate) fn connection(&self) -> u64 {
        self.link.map_or(0, |link| link.connection.number)
    }

    pub(crate) fn came_by(&self, connection: ConnectionId) -> bool {
        self.link.is_some_and(|link| link.connection == connection)
    }

    /// Returns true if the follower came by this connection or a later one.
    pub(crate) fn came_after(&self, connection: ConnectionId) -> bool {
        self.link.is_some_and(|link| link.connection.number >= connection.number)
    }

    /// Records a sign of life.
    pub(crate) fn seen(&mut self, now: Instant) {
        self.last_seen = self.last_seen.max(now);
    }

    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_seen) > launcher_silence()
    }

    pub(crate) fn record(&mut self, member: &str, event: &MemberEvent) {
        match event {
            MemberEvent::Started | MemberEvent::Arrived(_) => {
                self.members.insert(member.into());
            }
            MemberEvent::Exited(_) => {
                self.members.remove(member);
            }
            MemberEvent::CpuTime(_) | MemberEvent::Fixed(_) | MemberEvent::Stopped(_) => {}
        }
    }

    /// Records that the follower starts its deferred workers now. Returns their names.
    pub(crate) fn start_workers(&mut self) -> Vec<String> {
        let members: Vec<String> = initial_members(self.node_rank, self.deferred_workers).collect();
        self.members.extend(members.iter().cloned());
        members
    }
}

pub(crate) enum FollowerEvent {
    /// An event of a follower's member.
    Member { member: String, event: MemberEvent },
    /// A follower that knows of these generations has reconnected.
    CameBack { id: u64, generations: Vec<Formed> },
    /// A follower has gone with its members. `said_goodbye`: it said goodbye, and ended its members before.
    Lost { node_rank: usize, members: Vec<String>, said_goodbye: bool },
    /// The other launchers have gone on without this one, which was away: the launcher at `address` leads.
    Deposed { address: SocketAddr },
}

impl FollowerEvent {
    pub(crate) fn started(member: String) -> FollowerEvent {
        FollowerEvent::Member { member, event: MemberEvent::Started }
    }
}
