//! What a transport is before it is connected: its name, how far it reaches, and how two ranks get it going.

use std::sync::Arc;
use std::time::Duration;

use kolo_rendezvous::secure::Access;
use kolo_rendezvous::{AdvertisedAddress, Error, Liveness};
use kolo_schedule::Rank;

use super::congestion::Congestion;
use super::interface::Transport;
use crate::memory::{Backing, Pool};

/// How far apart two ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Threads of one process.
    Process,
    /// Processes of one host, which can map each other's memory.
    Host,
    /// Processes that only a network connects.
    Network,
}

/// Makes a rank's end of a transport for the ranks that connect.
pub(crate) type OpenConnector = for<'a> fn(&Connecting<'a>) -> Result<Option<OpenedConnector<'a>>, Error>;

/// A rank's end of a transport.
pub(crate) type OpenedConnector<'a> = Box<dyn Connector + 'a>;

/// One way to move segments between ranks: a line of [`TRANSPORTS`](super::TRANSPORTS).
pub struct TransportKind {
    /// Its name, as in `KOLO_TRANSPORT` and in tables.
    pub name: &'static str,
    /// What it is, in a few words: for help texts.
    pub about: &'static str,
    /// The farthest that two ranks may be apart.
    pub reach: Distance,
    /// Where the buffers have to lie that it sends from. In shared memory a peer reads them in place.
    pub(crate) backing: Backing,
    /// This rank's end of it; `None` where it leads nowhere from this process.
    pub(crate) connector: OpenConnector,
}

impl TransportKind {
    /// Whether a job can ask for it by name: its ranks are processes.
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

/// One rank's end of a transport until it is connected. The three steps are taken by all ranks of the group,
/// one after another.
pub(crate) trait Connector {
    /// What a peer must know to reach this end.
    fn address(&self) -> Result<String, Error>;

    /// Prepares for the peers within reach; `addresses` is in rank order, `None` for those that are out of
    /// reach. An error is no failure of the group: its ranks go by the next transport of the table.
    fn prepare(&mut self, addresses: &[Option<String>]) -> Result<(), Error>;

    /// Connects to `peers`, of which none is this rank. `on_host` ranks of the group share this host's cores.
    fn connect(self: Box<Self>, peers: &[Rank], on_host: usize) -> Result<Box<dyn Transport>, Error>;
}

/// The group that is being connected, as one of its ranks sees it.
#[derive(Clone, Copy)]
pub(crate) struct Connecting<'a> {
    pub(crate) rank: Rank,
    pub(crate) world: usize,
    pub(crate) context: &'a GroupContext,
    pub(crate) liveness: &'a Liveness,
}

/// What a rank brings along to every group that it connects with others: its job's group, and all sub-groups
/// of that.
#[derive(Clone, Debug)]
pub(crate) struct GroupContext {
    /// Ranks of one node can map each other's memory.
    pub(crate) node: String,
    /// The one transport to use, if the user has named one.
    pub(crate) wish: Option<&'static TransportKind>,
    /// Where others reach this host; `None` for threads of one process.
    pub(crate) advertised: Option<AdvertisedAddress>,
    pub(crate) access: Access,
    /// How long a rank waits for the others to connect.
    pub(crate) timeout: Duration,
    /// Messages over a network count as under way for so long.
    pub(crate) delay: Duration,
    pub(crate) congestion: Congestion,
    /// Connections between two ranks that are used at first, where a transport has such, and those that are
    /// opened.
    pub(crate) streams: usize,
    pub(crate) opened_streams: usize,
    /// Ranks of the group on this host.
    pub(crate) on_host: usize,
    /// Memory of what is sent as copies. Threads of one process share it: what one of them leaves behind
    /// after a failure another one may still be reading, and it stays until the last one has ended.
    pub(crate) copies: Arc<Pool>,
}

impl GroupContext {
    /// The context of threads of one process, which wait for each other so long.
    pub(crate) fn of_threads(timeout: Duration) -> Self {
        GroupContext {
            node: "threads".into(),
            wish: None,
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
