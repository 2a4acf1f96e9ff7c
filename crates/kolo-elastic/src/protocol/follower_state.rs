//! One follower as the leader sees it, and what the leader hears of its followers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use crate::events::MemberEvent;
use crate::generation::Formed;
use crate::launcher_protocol::ConnectionId;
use crate::member_name::initial_members;
use crate::timeouts::launcher_silence;

/// What the leader knows of one follower.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FollowerState {
    pub(crate) address: SocketAddr,
    pub(crate) node_rank: usize,
    /// Workers that the follower starts when the job begins.
    deferred_workers: usize,
    /// The names of its members that have been started and have not ended.
    pub(crate) members: BTreeSet<String>,
    /// The follower has told everything that it knew about its members when it came.
    pub(crate) members_told: bool,
    /// The leaders that the follower has left for good.
    pub(crate) left: BTreeSet<u64>,
    /// How messages come to the follower; `None` until it has come to this leader.
    pub(crate) link: Option<Link>,
    last_heard: Instant,
    /// The follower is asked whether another launcher leads now, because it has been silent or its connection
    /// has ended.
    pub(crate) is_probed: bool,
    /// The number of remote members that the follower has been told.
    pub(crate) remote_members: Option<usize>,
}

/// A follower's connection, as its leader uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) connection: ConnectionId,
    /// Messages sent to the follower.
    pub(crate) sent: u64,
}

impl Link {
    fn new(connection: ConnectionId) -> Option<Link> {
        Some(Link { connection, sent: 0 })
    }
}

impl FollowerState {
    /// A follower that joins now.
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
            members_told: false,
            left: BTreeSet::new(),
            link: Link::new(connection),
            last_heard: now,
            is_probed: false,
            remote_members: None,
        }
    }

    /// A follower of the last leader, with its members, which comes to this leader by itself. It may notice
    /// later than this one that the last leader is lost.
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
            members_told: false,
            left: BTreeSet::new(),
            link: None,
            last_heard: now + launcher_silence(),
            is_probed: false,
            remote_members: None,
        }
    }

    /// The follower comes back, or to a leader that has taken over.
    pub(crate) fn rejoined(&mut self, connection: ConnectionId, now: Instant) {
        (self.last_heard, self.link) = (now, Link::new(connection));
        (self.members_told, self.is_probed, self.remote_members) = (false, false, None);
    }

    /// The number of the connection by which the follower has come; 0 before.
    pub(crate) fn connection(&self) -> u64 {
        self.link.map_or(0, |link| link.connection.number)
    }

    /// Whether a connection is the one by which the follower has come.
    pub(crate) fn came_by(&self, connection: ConnectionId) -> bool {
        self.link.is_some_and(|link| link.connection == connection)
    }

    /// Whether the follower has come by this connection or a later one.
    pub(crate) fn came_after(&self, connection: ConnectionId) -> bool {
        self.link.is_some_and(|link| link.connection.number >= connection.number)
    }

    /// The follower lives.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.last_heard = self.last_heard.max(now);
    }

    /// Whether the follower has been silent for too long.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_heard) > launcher_silence()
    }

    /// Takes note of what has happened to one of the follower's members.
    pub(crate) fn note(&mut self, member: &str, event: &MemberEvent) {
        match event {
            MemberEvent::Started | MemberEvent::Arrived(_) => {
                self.members.insert(member.into());
            }
            MemberEvent::Exited(_) => {
                self.members.remove(member);
            }
            MemberEvent::CpuTime(_) => {}
        }
    }

    /// The follower starts its deferred workers now; gives their names.
    pub(crate) fn start_workers(&mut self) -> Vec<String> {
        let members: Vec<String> = initial_members(self.node_rank, self.deferred_workers).collect();
        self.members.extend(members.iter().cloned());
        members
    }
}

/// What the leader hears of its followers.
pub(crate) enum FollowerEvent {
    /// Something has happened to a follower's member.
    Member { member: String, event: MemberEvent },
    /// A follower has come back that knows of these generations.
    CameBack { id: u64, generations: Vec<Formed> },
    /// A follower has gone, and its members with it. `said_so`: it has told, and ended its members before.
    Lost { node_rank: usize, members: Vec<String>, said_so: bool },
    /// The others have gone on without this launcher, which has been away: the launcher at `address` leads.
    Deposed { address: SocketAddr },
}

impl FollowerEvent {
    /// A follower has started a member.
    pub(crate) fn started(member: String) -> FollowerEvent {
        FollowerEvent::Member { member, event: MemberEvent::Started }
    }
}
