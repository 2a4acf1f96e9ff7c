//! Events that a launcher's protocol handles.

use std::net::{IpAddr, SocketAddr};

use crate::events::{EndCause, MemberEvent};
use crate::launcher_protocol::{ConnectionId, ToFollower, ToLeader};
use crate::launcher_view::LauncherView;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// An event of a member of this node.
    Member { member: String, event: MemberEvent },
    /// The work of this node's members is done.
    WorkDone,
    /// This node starts no more workers, for this cause.
    Closed(EndCause),
    /// The launcher belongs to a job.
    Found(Found),
    /// There is no job to join. The reason is a sentence; `for_all`: members without a coordinator must end,
    /// too.
    NotFound { reason: String, for_all: bool },
    /// The leader to which this launcher has connected welcomes it.
    Welcomed,
    /// The leader to which this launcher has connected refuses it.
    RefusedByLeader { why: String },
    /// The leader has sent a message.
    FromLeader(ToFollower),
    /// The connection to the leader has broken, or could not be made.
    LeaderLost { why: String },
    /// A follower has sent a message.
    FromFollower { connection: ConnectionId, message: ToLeader },
    /// A host was refused because its token differs.
    TokenRefused(IpAddr),
    /// The view of a launcher that was probed because this connection ended; `None` if it does not answer.
    Probed { launcher: u64, connection: u64, view: Option<LauncherView> },
    /// The arbiter has answered the last claim.
    ClaimAnswered(ClaimAnswer),
    /// The store of the job's last group listens at this address, or could not be started.
    LastServed(Result<SocketAddr, String>),
    /// All events up to now have been passed on: it is time to decide.
    Tick,
    /// The launcher ends in good order.
    End,
}

/// A launcher's place in a job that it has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Found {
    /// Address at which others reach this launcher's store.
    pub(crate) address: SocketAddr,
    pub(crate) node_rank: usize,
    pub(crate) view: LauncherView,
    /// True if this launcher has begun the job; otherwise the leader has welcomed it.
    pub(crate) leads: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClaimAnswer {
    /// The generation has this number. Its store listens at this address, or could not be started.
    Granted { number: u64, store: Result<SocketAddr, String> },
    /// Not yet: the text is the reason, as a sentence.
    NotYet(String),
    /// Another leader has gone on; the text names it, as a sentence.
    Superseded(String),
}
