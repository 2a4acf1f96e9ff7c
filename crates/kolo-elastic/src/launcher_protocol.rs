//! Messages between the launchers of a job: JSON under keys of the leader's store.
//!
//! | key | set by | value |
//! |---|---|---|
//! | `view` | every launcher, in its own store | [`LauncherView`]: one launcher leads to all others |
//! | `to-leader/<connection>/<number>` | a follower | [`ToLeader`] |
//! | `to-leader/<connection>/end` | the store, when the connection ends | [`ToLeader::ConnectionLost`] |
//! | `to-follower/<connection>/<number>` | the leader | [`ToFollower`] |
//!
//! Messages are numbered from 0 in both directions, so none is handled twice or out of order. A follower's
//! connections are numbered as well, because messages of an ended connection may arrive after those of the
//! next one.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::events::{EndCause, MemberEvent, Obstacle};
use crate::generation::Formed;
use crate::launcher_view::LauncherView;
use crate::worker_protocol::Reply;

pub(crate) const TO_LEADER: &str = "to-leader/";
pub(crate) const VIEW: &str = "view";

/// One connection of a follower to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId {
    /// The follower's id.
    pub(crate) launcher: u64,
    /// Number of the connection among the follower's.
    pub(crate) number: u64,
}

/// Writes the form that keys contain.
impl std::fmt::Display for ConnectionId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}-{}", self.launcher, self.number)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ToLeader {
    /// The launcher joins, or connects to a leader that has taken over.
    Hello(Hello),
    /// The launcher has reported everything that it knew about its members when it connected.
    MembersTold,
    /// An event of a member of the launcher's node.
    Member { member: String, event: MemberEvent },
    /// The launcher lives, and has nothing else to report.
    Heartbeat,
    /// The work of the launcher's members is done.
    WorkDone,
    /// The launcher starts no more members, for this cause.
    Closed(EndCause),
    /// The launcher ends in good order.
    Goodbye,
    /// The launcher's connection has ended without a goodbye.
    ConnectionLost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Address at which others reach the launcher's store.
    pub(crate) address: SocketAddr,
    /// Node rank that the user, or the last leader, has given the launcher.
    pub(crate) node_rank: Option<usize>,
    /// Number of workers that the launcher starts once the leader welcomes it.
    pub(crate) deferred_workers: usize,
    /// Generations known to a launcher that a leader has welcomed before; `None` for a launcher that joins.
    pub(crate) rejoins: Option<Vec<Formed>>,
    /// Leaders that the launcher has left for good: their assignments reach none of its members.
    #[serde(default)]
    pub(crate) left: BTreeSet<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ToFollower {
    /// The launcher belongs to the job.
    Welcome { node_rank: usize },
    /// The launcher does not belong to the job, or no longer does.
    Refused { reason: String },
    /// This part of the job must not go on, because another one does or may.
    Superseded { reason: String },
    /// The job does not begin, because a worker of some node cannot.
    CannotBegin(Obstacle),
    /// The leader's view has changed.
    View(LauncherView),
    /// A generation has begun.
    Formed(Formed),
    /// The reply to an arrival of one of the follower's members.
    Reply { member: String, arrival: u64, reply: Reply },
    /// The members of a generation should arrive again after a step.
    RequestRegroup { generation: u64 },
    /// A member hangs, and the follower must end it for this reason.
    Evict { member: String, reason: String },
    /// Too few members have waited too long.
    TooFewMembers { present: usize },
    /// Number of members on nodes other than the follower's.
    RemoteMembers { count: usize },
    /// The leader ends in good order, and these members, given by their identities, have ended. An obstacle
    /// keeps the job from beginning.
    Goodbye { ended: Vec<String>, obstacle: Option<Obstacle> },
}

pub(crate) fn to_leader_key(connection: ConnectionId, number: u64) -> String {
    format!("{TO_LEADER}{connection}/{number}")
}

/// Returns the key that the store sets when a follower's connection ends.
pub(crate) fn connection_end_key(connection: ConnectionId) -> String {
    format!("{TO_LEADER}{connection}/end")
}

pub(crate) fn to_follower_key(connection: ConnectionId, number: u64) -> String {
    format!("to-follower/{connection}/{number}")
}

/// Decodes the messages to the leader, those of each connection in the order of sending. A message that
/// cannot be decoded is logged and left out.
pub(crate) fn in_order(taken: Vec<(String, String)>) -> Vec<(ConnectionId, ToLeader)> {
    let mut messages: Vec<(ConnectionId, u64, ToLeader)> =
        taken.iter().filter_map(|(key, text)| decode(key, text)).collect();
    messages.sort_by_key(|(connection, number, _)| (*connection, *number));
    messages.into_iter().map(|(connection, _, message)| (connection, message)).collect()
}

fn decode(key: &str, text: &str) -> Option<(ConnectionId, u64, ToLeader)> {
    let (connection, number) = key.split_once('/')?;
    let (launcher, its_number) = connection.split_once('-')?;
    let connection = ConnectionId { launcher: launcher.parse().ok()?, number: its_number.parse().ok()? };
    let number = if number == "end" { u64::MAX } else { number.parse().ok()? };
    let decoded = serde_json::from_str(text);
    let message = decoded.inspect_err(|error| log::warn!("launcher {launcher}: {error}")).ok()?;
    Some((connection, number, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_order_and_the_end_comes_last() {
        let text = |message: &ToLeader| serde_json::to_string(message).unwrap();
        let started =
            |n: usize| ToLeader::Member { member: format!("node1/{n}.0"), event: MemberEvent::Started };
        let sent = |n: usize| (format!("7-1/{n}"), text(&started(n)));
        let end = ("7-1/end".into(), text(&ToLeader::ConnectionLost));
        let next = ("7-2/0".into(), text(&ToLeader::Heartbeat));
        let taken = vec![next, sent(10), end, sent(9), ("x/1".into(), "{}".into())];
        let (first, second) =
            (ConnectionId { launcher: 7, number: 1 }, ConnectionId { launcher: 7, number: 2 });
        let of_first = [started(9), started(10), ToLeader::ConnectionLost].map(|message| (first, message));
        let all: Vec<_> = of_first.into_iter().chain([(second, ToLeader::Heartbeat)]).collect();
        assert_eq!(in_order(taken), all);
    }
}
