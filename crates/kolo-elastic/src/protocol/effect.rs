//! Effects that the protocol of a launcher requests. The driver carries them out, and does nothing else.

use std::net::SocketAddr;

use crate::arbiter::Claim;
use crate::events::CoordinatorEvent;
use crate::generation::Formed;
use crate::launcher_protocol::{ConnectionId, Hello, ToFollower, ToLeader};
use crate::launcher_view::LauncherView;
use crate::worker_protocol::Reply;

/// One effect. The driver carries out the effects of one event in order, before it passes on the next event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    /// Publishes the job's id to members.
    PublishJobId(u64),
    /// Publishes to members that there is no job, and why.
    PublishNoJob { reason: String },
    /// Answers an arrival of a member of this node.
    Reply { member: String, arrival: u64, reply: Reply },
    /// Asks the members of this node in a generation to arrive again after a step.
    RequestRegroup { generation: u64 },
    /// Announces a generation that has begun on this node; the one before has the number `after`.
    GenerationFormed { formed: Formed, after: u64 },
    /// Reports an event to the launcher that runs the coordinator.
    Report(CoordinatorEvent),
    /// Publishes the view for launchers that probe this one.
    Publish(LauncherView),
    /// Sends a message to the leader, after all earlier messages.
    ToLeader(ToLeader),
    /// Sends a message to a follower, as number `number` of the connection.
    ToFollower { connection: ConnectionId, number: u64, message: ToFollower },
    /// Leaves the leader, and connects to the launcher at this address instead.
    /// [`Event::Welcomed`](super::Event::Welcomed), `RefusedByLeader` or `LeaderLost` is the answer.
    Connect { leader: SocketAddr, hello: Hello },
    /// Leaves the leader.
    Disconnect,
    /// Leaves the job: closes the connection to the leader and the stores that others reach.
    Leave,
    /// Asks a launcher for its view, because the connection with this number has ended;
    /// [`Event::Probed`](super::Event::Probed) is the answer.
    Probe { launcher: u64, address: SocketAddr, connection: u64 },
    /// Asks the arbiter; [`Event::ClaimAnswered`](super::Event::ClaimAnswered) is the answer. The store of a
    /// granted generation replaces the last one.
    Claim(Claim),
    /// Starts a store for the last group of a job, of so many members, in place of that of the last
    /// generation. [`Event::LastServed`](super::Event::LastServed) is the answer, at once.
    ServeLast { members: usize },
    /// Reports the death of this rank to the members of the running generation.
    FailGeneration { rank: usize },
    /// Looks for the job again.
    Discover,
}

#[derive(Debug, Default)]
pub(crate) struct Effects(pub(crate) Vec<Effect>);

impl Effects {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    pub(crate) fn report(&mut self, event: CoordinatorEvent) {
        self.push(Effect::Report(event));
    }

    pub(crate) fn warn(&mut self, text: String) {
        self.report(CoordinatorEvent::Warning { text });
    }
}
