//! What the protocol of a launcher wants done: the driver does it, and nothing else.

use std::net::SocketAddr;

use crate::arbiter::Claim;
use crate::events::CoordinatorEvent;
use crate::generation::Formed;
use crate::launcher_protocol::{ConnectionId, Hello, ToFollower, ToLeader};
use crate::launcher_view::LauncherView;
use crate::worker_protocol::Reply;

/// One thing to do. Those of one event are done in their order, before the next event is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    /// Tells members which job they belong to.
    PublishJobId(u64),
    /// Tells members that ask for their job that there is none, and why.
    PublishNoJob { reason: String },
    /// Answers an arrival of a member of this node.
    Reply { member: String, arrival: u64, reply: Reply },
    /// Asks the members of this node in a generation to arrive again after a step.
    RequestRegroup { generation: u64 },
    /// Tells this node of a generation that has begun, which follows the one with the number `after`.
    GenerationFormed { formed: Formed, after: u64 },
    /// Tells the launcher that runs the coordinator.
    Tell(CoordinatorEvent),
    /// Shows the view to whoever probes this launcher.
    Publish(LauncherView),
    /// Sends a message to the leader, after all before it.
    ToLeader(ToLeader),
    /// Sends a message to a follower, the one with this number.
    ToFollower { connection: ConnectionId, number: u64, message: ToFollower },
    /// Leaves the leader, and connects to the launcher at this address instead. It answers with
    /// [`Event::Welcomed`](super::Event::Welcomed), `RefusedByLeader` or `LeaderLost`.
    Connect { leader: SocketAddr, hello: Hello },
    /// Leaves the leader.
    Disconnect,
    /// Leaves the job: the connection to the leader and the stores that others reach are closed.
    Leave,
    /// Asks a launcher for its view, because of the end of the connection with this number;
    /// [`Event::Probed`](super::Event::Probed) is the answer.
    Probe { launcher: u64, address: SocketAddr, connection: u64 },
    /// Asks the arbiter; [`Event::ClaimAnswered`](super::Event::ClaimAnswered) is the answer. The store of a
    /// generation that is granted takes the place of the last one.
    Claim(Claim),
    /// Tells the members of the running generation that the one with this rank has died.
    FailGeneration { rank: usize },
    /// Looks for the job once more.
    Discover,
}

/// The effects of one event, in their order.
#[derive(Debug, Default)]
pub(crate) struct Effects(pub(crate) Vec<Effect>);

impl Effects {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// Tells the launcher that runs the coordinator.
    pub(crate) fn tell(&mut self, event: CoordinatorEvent) {
        self.push(Effect::Tell(event));
    }

    /// Tells the launcher of something that does not work as it should.
    pub(crate) fn warn(&mut self, text: String) {
        self.tell(CoordinatorEvent::Warning { text });
    }
}
