//! What the launchers of a job say to one another: JSON under keys of the leader's store.
//!
//! | key | who sets it | value |
//! |---|---|---|
//! | `view` | every launcher, in its own store | [`LauncherView`]: whoever finds one launcher finds all |
//! | `to-leader/<connection>/<number>` | a follower | [`ToLeader`] |
//! | `to-leader/<connection>/end` | the store, when the connection ends | [`ToLeader::ConnectionLost`] |
//! | `to-follower/<connection>/<number>` | the leader | [`ToFollower`] |
//!
//! Messages are numbered from 0 in both directions, so that none is heard twice or out of order. A follower's
//! connections are numbered as well: what one sends that has ended may come after what the next one sends.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::events::MemberEvent;
use crate::generation::Formed;
use crate::launcher_view::LauncherView;
use crate::worker_protocol::Reply;

/// The prefix of the keys of messages to the leader.
pub(crate) const TO_LEADER: &str = "to-leader/";
/// The key of a launcher's view.
pub(crate) const VIEW: &str = "view";

/// One connection of a follower to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId {
    /// The follower's id.
    pub(crate) launcher: u64,
    /// Counts the follower's connections.
    pub(crate) number: u64,
}

/// As in keys.
impl std::fmt::Display for ConnectionId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}-{}", self.launcher, self.number)
    }
}

/// A follower's message to the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ToLeader {
    /// The launcher joins, or comes to a leader that has taken over.
    Hello(Hello),
    /// The launcher has told everything that it knew about its members when it came.
    MembersTold,
    /// Something has happened to a member of the launcher's node.
    Member { member: String, event: MemberEvent },
    /// The launcher lives, and nothing is new.
    Heartbeat,
    /// The work of the launcher's members is done.
    WorkDone,
    /// The launcher ends in good order.
    Goodbye,
    /// The launcher's connection has ended without a goodbye.
    ConnectionLost,
}

/// A launcher introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Where others reach the launcher's store.
    pub(crate) address: SocketAddr,
    /// The node rank that its user, or the leader before, has given it.
    pub(crate) node_rank: Option<usize>,
    /// Workers that the launcher starts once it is welcome.
    pub(crate) deferred_workers: usize,
    /// The generations that a launcher knows of which has been welcome before; `None` for one that joins.
    pub(crate) rejoins: Option<Vec<Formed>>,
    /// The leaders that the launcher has left for good: what they grant comes to none of its members.
    #[serde(default)]
    pub(crate) left: BTreeSet<u64>,
}

/// The leader's message to a follower.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ToFollower {
    /// The launcher belongs to the job.
    Welcome { node_rank: usize },
    /// The launcher does not belong to the job, or not any more.
    Refused { reason: String },
    /// This part of the job must not go on, because another one does or may.
    Superseded { reason: String },
    /// The launchers are others than before.
    View(LauncherView),
    /// A generation has begun.
    Formed(Formed),
    /// The reply to an arrival of one of the follower's members.
    Reply { member: String, arrival: u64, reply: Reply },
    /// The members of a generation are asked to arrive again after a step.
    RequestRegroup { generation: u64 },
    /// A member hangs, and the follower must end it.
    Evict { member: String },
    /// Too few members have waited too long.
    TooFewMembers { present: usize },
    /// So many members live on other nodes than the follower's.
    RemoteMembers { count: usize },
    /// The leader ends in good order, and these members have ended, by their identities.
    Goodbye { ended: Vec<String> },
}

/// The key of a follower's message to the leader.
pub(crate) fn to_leader_key(connection: ConnectionId, number: u64) -> String {
    format!("{TO_LEADER}{connection}/{number}")
}

/// The key that the store sets when a follower's connection ends.
pub(crate) fn connection_end_key(connection: ConnectionId) -> String {
    format!("{TO_LEADER}{connection}/end")
}

/// The key of the leader's message to a follower.
pub(crate) fn to_follower_key(connection: ConnectionId, number: u64) -> String {
    format!("to-follower/{connection}/{number}")
}

/// The messages to the leader that have come in, those of each connection in the order in which they were
/// sent. A message that cannot be decoded is left out, and told in the log.
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
