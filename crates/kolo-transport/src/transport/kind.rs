//! A transport before it is connected: its name, its reach, and the steps that connect two ranks.

use std::sync::Arc;
use std::time::Duration;

use kolo_rendezvous::secure::Access;
use kolo_rendezvous::{AdvertisedAddress, Error, Liveness};
use kolo_schedule::Rank;

use super::congestion::Congestion;
use super::interface::Transport;
use crate::memory::{Backing, Pool};

/// Distance between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Threads of one process.
    Process,
    /// Processes of one host, which can map each other's memory.
    Host,
    /// Processes that only a network connects.
    Network,
}

/// Creates a rank's end of a transport for the ranks that connect.
pub type OpenConnector = for<'a> fn(&Connecting<'a>) -> Result<Option<OpenedConnector<'a>>, Error>;

/// A rank's end of a transport.
pub type OpenedConnector<'a> = Box<dyn Connector + 'a>;

/// One way to move segments between ranks: a line of [`TRANSPORTS`](super::TRANSPORTS).
pub struct TransportKind {
    /// Name of the transport, as in `KOLO_TRANSPORT` and in tables.
    pub name: &'static str,
    /// Short description for help texts.
    pub about: &'static str,
    /// Largest distance between two ranks that the transport can connect.
    pub reach: Distance,
    /// Kind of memory that the group's buffers need. In shared memory a peer reads them in place.
    pub backing: Backing,
    /// Creates this rank's end; `None` if the transport leads nowhere from this process.
    pub connector: OpenConnector,
}

impl TransportKind {
    /// Returns true if a job can select the transport by name: its ranks are processes.
    pub fn is_for_jobs(&self) -> bool {
        self.reach > Distance::Process
    }
}

impl std::fmt::Debug for TransportKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for TransportKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for TransportKind {}

/// One rank's end of a transport until it is connected. All ranks of the group take the three steps in turn.
pub trait Connector {
    /// Returns the text that a peer needs to reach this end.
    fn address(&self) -> Result<String, Error>;

    /// Prepares for the peers within reach. `addresses` is in rank order, `None` for ranks out of reach.
    /// An error does not fail the group: its ranks use the next transport of the table.
    fn prepare(&mut self, addresses: &[Option<String>]) -> Result<(), Error>;

    /// Connects to `peers`, which exclude this rank. `on_host` ranks of the group share this host's cores.
    fn connect(self: Box<Self>, peers: &[Rank], on_host: usize) -> Result<Box<dyn Transport>, Error>;
}

/// The group that is being connected, as seen by one of its ranks.
#[derive(Clone, Copy)]
pub struct Connecting<'a> {
    /// This rank's number in the group.
    pub rank: Rank,
    /// Number of ranks.
    pub world: usize,
    /// Context that the rank's groups share.
    pub context: &'a GroupContext,
    /// Presence of the group's ranks.
    pub liveness: &'a Liveness,
}

kolo_schedule::opaque_debug!(Connecting<'_> { rank, world });

/// Context of a rank for all groups that it connects: its job's group and all sub-groups of that.
#[derive(Clone, Debug)]
pub struct GroupContext {
    /// Name of the node; ranks of one node can map each other's memory.
    pub node: String,
    /// The only transport to use, if the user has named one.
    pub transport: Option<&'static TransportKind>,
    /// Address at which others reach this host; `None` for threads of one process.
    pub advertised: Option<AdvertisedAddress>,
    /// Token and encryption of connections.
    pub access: Access,
    /// Longest time that a rank waits for the others to connect.
    pub timeout: Duration,
    /// Extra delivery time of messages over a network.
    pub delay: Duration,
    /// Congestion control of TCP connections between hosts.
    pub congestion: Congestion,
    /// Number of connections between two ranks that are used at first.
    pub streams: usize,
    /// Number of connections between two ranks that are opened.
    pub opened_streams: usize,
    /// Number of ranks of the group on this host.
    pub on_host: usize,
    /// Memory of messages that are sent as copies. Threads of one process share it: after a failure one
    /// thread may still read another's copies, so they stay until the last thread has ended.
    pub copies: Arc<Pool>,
}

impl GroupContext {
    /// Creates the context of threads of one process, with the time that they wait for each other.
    pub fn of_threads(timeout: Duration) -> Self {
        GroupContext {
            node: "threads".into(),
            transport: None,
            advertised: None,
            access: Access::default(),
            timeout,
            delay: Duration::ZERO,
            congestion: Congestion::default(),
            streams: 1,
            opened_streams: 1,
            on_host: 1,
            copies: Pool::new(Backing::Heap),
        }
    }
}
