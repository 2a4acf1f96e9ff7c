//! What does the work of a group's collectives on host memory. The native one runs schedules over transports;
//! another one, MPI for example, replaces it whole.

use std::sync::Arc;

use kolo_rendezvous::{Error, InvalidCall};
use kolo_schedule::{Algorithm, Choice, DType, Network, Rank};

use crate::collective::Collective;
use crate::memory::PeerMemory;
use crate::pace::Pace;
use crate::transport::Distance;

pub use crate::kernel::fold;
pub use crate::memory::Memory;
pub use crate::wait::WaitMode;
pub use crate::with_type;

/// A backend that has formed a job's group by its own means.
pub struct FormedBackend {
    /// Does the collectives.
    pub backend: Box<dyn Backend>,
    /// This process, in the job's group.
    pub rank: Rank,
    /// Number of processes in it.
    pub world: usize,
    /// Ranks of one name share memory.
    pub node: String,
    /// Ends all processes of the job, this one included, when others would wait for this rank for ever.
    pub end: fn(&Error),
}

/// A window that is about to be opened.
pub struct NewWindow<'a> {
    /// This rank's parts, one after another.
    pub(crate) memory: Memory<'a>,
    /// Bytes of one part, the same on all ranks.
    pub(crate) part: usize,
    /// Parts that each rank shows.
    pub(crate) parts: Vec<usize>,
    /// The number of the first window that this rank still reads.
    pub(crate) reads_from: u64,
}

impl NewWindow<'_> {
    /// Bytes that a rank shows.
    pub(crate) fn bytes_of(&self, rank: Rank) -> usize {
        self.part * self.parts[rank.0]
    }
}

/// What all ranks have told when a window was opened.
pub struct OpenedWindow {
    /// The memory that each rank shows, in rank order; none for this one.
    pub(crate) peers: Vec<Option<PeerMemory>>,
    /// The first window that some rank still reads.
    pub(crate) reads_from: u64,
}

/// Does the collectives of one group, one after another.
pub trait Backend: Send {
    /// Runs a collective to its end on a buffer that nobody else touches meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::is_refusal`] tells a call that is wrong by itself, before anything was sent; after any other
    /// error the group has failed.
    fn run(&mut self, collective: &Collective, memory: &Memory<'_>, mode: WaitMode) -> Result<(), Error>;

    /// How the ranks talk, for logs and tables.
    fn name(&self) -> &'static str;

    /// How far apart its ranks are, as far as the backend knows: whether messages are slow enough for buckets
    /// to be small. One that hides its network, as MPI does, is tuned for it and counts as near.
    fn reach(&self) -> Distance {
        Distance::Host
    }

    /// Whether it runs on a slice as on a buffer: peers never read it where it lies, and nothing of it is
    /// looked at after [`Backend::run`], even if that fails.
    fn runs_on_slices(&self) -> bool {
        false
    }

    /// Whether all ranks can read each other's buffers where they lie, and no algorithm has been asked for
    /// that would reduce them instead.
    fn opens_windows(&mut self) -> bool {
        false
    }

    /// Shows the parts of some buffers to all ranks, each of which shows its own in as many windows; gives
    /// theirs. They stay as they are until all ranks have told that they do not read the window any more.
    ///
    /// # Errors
    ///
    /// As [`Backend::run`].
    fn open_windows(
        &mut self,
        _windows: &[NewWindow<'_>],
        _mode: WaitMode,
    ) -> Result<Vec<OpenedWindow>, Error> {
        Err(InvalidCall::NotInPlace { transport: self.name().into() }.into())
    }

    /// Whether collectives of several groups may be under way at once. Where they may not, whoever uses a
    /// second group waits until the first one is idle on all ranks.
    fn shares_the_wire(&self) -> bool {
        true
    }

    /// Waits for what may still be under way when a rank leaves in good order.
    fn finish(&mut self) {}

    /// A backend for `members` of this group, where this rank will be `rank`. All ranks call it at once, each
    /// with its own companions. Only for groups that are not connected by transports.
    ///
    /// # Errors
    ///
    /// The members cannot form a group.
    fn split(&mut self, _rank: Rank, _members: &[Rank]) -> Result<Box<dyn Backend>, Error> {
        unreachable!("the group connects sub-groups over {}", self.name())
    }

    /// Which algorithm is picked for a collective on so many elements, and why; `None` if the backend does
    /// not say.
    fn explain(&mut self, _collective: &Collective, _elements: usize, _dtype: DType) -> Option<Choice> {
        None
    }

    /// From now on uses that algorithm wherever it does the operation; `None` leaves the choice to the
    /// backend.
    ///
    /// # Errors
    ///
    /// It cannot do an all-reduce on this group.
    fn force(&mut self, _algorithm: Option<&'static Algorithm>) -> Result<(), Error> {
        Ok(())
    }

    /// From now on uses that algorithm for long sums wherever it may be picked at all, so that no sum has
    /// other bits by it; `None` leaves the choice to the backend.
    fn prefer(&mut self, _algorithm: Option<&'static Algorithm>) {}

    /// Connections between two ranks over which messages go in turn, and how many of them there are.
    fn streams(&self) -> (usize, usize) {
        (1, 1)
    }

    /// From now on messages go over so many of the connections between two ranks.
    fn use_streams(&mut self, _count: usize) {}

    /// What the backend's cost model knows of the network.
    fn network(&self) -> Network {
        Network::default()
    }

    /// From now on chooses algorithms by what has been measured.
    fn learn(&mut self, _network: Network) {}

    /// From now on waits no longer than the pace of an elastic job's generation allows.
    fn follow(&mut self, _pace: Arc<Pace>) {}

    /// The pace that it follows, if any.
    fn pace(&self) -> Option<Arc<Pace>> {
        None
    }
}
