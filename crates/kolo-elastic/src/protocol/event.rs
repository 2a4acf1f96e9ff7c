//! What the protocol of a launcher is told.

use std::net::{IpAddr, SocketAddr};

use crate::events::MemberEvent;
use crate::launcher_protocol::{ConnectionId, ToFollower, ToLeader};
use crate::launcher_view::LauncherView;

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// Something has happened to a member of this node.
    Member { member: String, event: MemberEvent },
    /// The work of this node's members is done.
    WorkDone,
    /// No more workers will be started on this node.
    Closed,
    /// The launcher belongs to a job.
    Found(Found),
    /// There is no job to belong to. The reason is a sentence; `for_all`: it holds for members, too, that do
    /// without a coordinator.
    NotFound { reason: String, for_all: bool },
    /// The leader that this launcher has connected to welcomes it.
    Welcomed,
    /// The leader that this launcher has connected to does not want it.
    RefusedByLeader { why: String },
    /// The leader has sent a message.
    FromLeader(ToFollower),
    /// The connection to the leader has broken, or has not come about.
    LeaderLost { why: String },
    /// A follower has sent a message.
    FromFollower { connection: ConnectionId, message: ToLeader },
    /// A host was refused because its token differs.
    TokenRefused(IpAddr),
    /// What a launcher shows that was probed because of this connection; `None` where it does not answer.
    Probed { launcher: u64, connection: u64, view: Option<LauncherView> },
    /// The arbiter has answered the last claim.
    ClaimAnswered(ClaimAnswer),
    /// All that has happened until now is told: it is time to decide.
    Tick,
    /// The launcher ends in good order.
    End,
}

/// How a launcher belongs to a job that it has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Found {
    /// Where others reach this launcher's store.
    pub(crate) address: SocketAddr,
    pub(crate) node_rank: usize,
    pub(crate) view: LauncherView,
    /// It has begun the job; otherwise the leader has welcomed it.
    pub(crate) leads: bool,
}

/// What the arbiter has answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClaimAnswer {
    /// The generation has this number. Its store listens at this address, or cannot be started.
    Granted { number: u64, store: Result<SocketAddr, String> },
    /// Not yet: the text is the reason, as a sentence.
    NotYet(String),
    /// Another leader has gone on; the text says who, as a sentence.
    Superseded(String),
}
