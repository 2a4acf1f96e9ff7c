//! The interface to what runs a group's collectives on host memory. The native backend runs schedules
//! over transports; another backend, MPI for example, replaces it completely.

use std::sync::Arc;

use kolo_rendezvous::{Error, InvalidCall};
use kolo_schedule::{Algorithm, Choice, DType, Network, Rank};

use crate::collective::Collective;
use crate::pace::Pace;
use kolo_transport::{Distance, PeerMemory};

pub use crate::kernel::fold;
pub use kolo_transport::{Memory, WaitMode, with_type};

/// A backend that has formed a job's group by its own means.
pub struct FormedBackend {
    /// Runs the collectives.
    pub backend: Box<dyn Backend>,
    /// Rank of this process in the job's group.
    pub rank: Rank,
    /// Number of processes in the group.
    pub world: usize,
    /// Name of this process's node; ranks with the same name share memory.
    pub node: String,
    /// Ends all processes of the job, this one included, because others would wait for this rank forever.
    pub end: fn(&Error),
}

kolo_schedule::opaque_debug!(FormedBackend { rank, world, node });

/// A window that this rank is about to open.
pub struct NewWindow<'a> {
    /// This rank's parts, one after another.
    pub(crate) memory: Memory<'a>,
    /// Bytes of one part, the same on all ranks.
    pub(crate) part: usize,
    pub(crate) parts: Vec<usize>,
    /// Number of the first window that this rank still reads.
    pub(crate) reads_from: u64,
}

kolo_schedule::opaque_debug!(NewWindow<'_> { part, reads_from });

impl NewWindow<'_> {
    pub(crate) fn bytes_of(&self, rank: Rank) -> usize {
        self.part * self.parts[rank.0]
    }
}

/// The reports of all ranks on the opening of a window.
#[derive(Debug)]
pub struct OpenedWindow {
    /// The memory that each rank shows, in rank order; `None` for this rank.
    pub(crate) peers: Vec<Option<PeerMemory>>,
    /// Number of the first window that some rank still reads.
    pub(crate) reads_from: u64,
}

/// Runs the collectives of one group, one after another.
pub trait Backend: Send {
    /// Runs a collective to its end on a buffer that nothing else touches meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::is_refusal`] marks an invalid call, which failed before anything was sent. After any
    /// other error the group has failed.
    fn run(&mut self, collective: &Collective, memory: &Memory<'_>, mode: WaitMode) -> Result<(), Error>;

    /// Name of the transport between the ranks, for logs and tables.
    fn name(&self) -> &'static str;

    /// Distance between the ranks, as far as the backend knows it; a long distance calls for small buckets.
    /// A backend that hides its network, as MPI does, is already tuned for it and counts as near.
    fn reach(&self) -> Distance {
        Distance::Host
    }

    /// True if the backend runs the collective on memory that is no buffer's: a slice, or an input and an
    /// output ([`Memory::result`]). Nothing reads it after [`Backend::run`] returns; after an error peers may
    /// still read shared memory ([`Memory::leave_to_peers`]).
    ///
    /// # Errors
    ///
    /// The call is invalid.
    fn runs_on(&mut self, _collective: &Collective, _memory: &Memory<'_>) -> Result<bool, Error> {
        Ok(false)
    }

    /// True if all ranks can read each other's buffers in place, and no algorithm is forced instead.
    fn opens_windows(&mut self) -> bool {
        false
    }

    /// Shows the parts of some buffers to all ranks and returns the other ranks' parts, in as many windows.
    /// The parts stay unchanged until all ranks have reported that they no longer read the window. Fails as
    /// [`Backend::run`] does.
    fn open_windows(
        &mut self,
        _windows: &[NewWindow<'_>],
        _mode: WaitMode,
    ) -> Result<Vec<OpenedWindow>, Error> {
        Err(InvalidCall::NotInPlace { transport: self.name().into() }.into())
    }

    /// True if collectives of several groups may be in flight at once. Otherwise the caller must wait
    /// until the first group is idle on all ranks before it uses a second one.
    fn shares_the_wire(&self) -> bool {
        true
    }

    /// Waits for messages that may still be in flight when a rank leaves in good order.
    fn finish(&mut self) {}

    /// Creates a backend for `members` of this group, in which this rank becomes `rank`. All ranks call it
    /// at once, each with the members of its own sub-group. Only for groups that transports do not connect.
    ///
    /// # Errors
    ///
    /// The members cannot form a group.
    fn split(&mut self, _rank: Rank, _members: &[Rank]) -> Result<Box<dyn Backend>, Error> {
        unreachable!("the group connects sub-groups over {}", self.name())
    }

    /// Returns the algorithm chosen for a collective, and why; `None` if the backend does not report it.
    fn explain(&mut self, _collective: &Collective, _elements: usize, _dtype: DType) -> Option<Choice> {
        None
    }

    /// Uses `algorithm` from now on for every operation that it implements; `None` frees the choice.
    ///
    /// # Errors
    ///
    /// The algorithm cannot run an all-reduce on this group.
    fn force(&mut self, _algorithm: Option<&'static Algorithm>) -> Result<(), Error> {
        Ok(())
    }

    /// Uses `algorithm` from now on for long sums wherever the backend could choose it by itself, so no
    /// sum changes its bits; `None` leaves the choice to the backend.
    fn prefer(&mut self, _algorithm: Option<&'static Algorithm>) {}

    /// Number of connections between two ranks that messages take turns on, and number of open connections.
    fn streams(&self) -> (usize, usize) {
        (1, 1)
    }

    /// Spreads messages from now on over `count` of the connections between two ranks.
    fn use_streams(&mut self, _count: usize) {}

    /// Parameters of the network in the backend's cost model.
    fn network(&self) -> Network {
        Network::default()
    }

    /// Chooses algorithms from now on by the measured `network`.
    fn learn(&mut self, _network: Network) {}

    /// Limits waits from now on by the pace of an elastic job's generation.
    fn follow(&mut self, _pace: Arc<Pace>) {}

    /// The pace that limits waits, if any.
    fn pace(&self) -> Option<Arc<Pace>> {
        None
    }
}
