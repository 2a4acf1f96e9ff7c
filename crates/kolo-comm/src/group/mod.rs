//! Groups: ranks that act together. A group is formed ([`forming`]) and measures its network
//! ([`measure`], and [`link_rates`] if links may differ). It runs collectives on buffers (here), on
//! slices ([`operations`], [`coalesced`]), on the caller's own thread ([`directly`]), on any value that
//! serde can write ([`values`]), or several as one ([`stages`]). Deferred sums are added when they are read
//! ([`deferred`]). [`messages`] travel beside the collectives, to an [`inbox`]. [`shared`] runs them one by
//! one, and latches the first failure.

mod coalesced;
mod deferred;
mod directly;
mod forming;
mod inbox;
mod link_rates;
mod measure;
mod messages;
mod operations;
mod shared;
mod split;
mod stages;
mod values;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::shared::{GroupOrigin, Shared};
use crate::backend::Backend;
use crate::collective::Collective;
use crate::comm_thread::CommThread;
use crate::options::Options;
use crate::pace::Pace;
use crate::pending::Pending;
use kolo_rendezvous::{Error, InvalidCall, Liveness};
use kolo_schedule::{Choice, DType, Network, Rank, Topology};
use kolo_transport::{Buffer, Distance, Element, GroupContext, LINGER, Lending, Pool, WaitMode};
use parking_lot::Mutex;

pub use self::deferred::{Deferred, SumParts};
pub use self::inbox::Receiving;
pub use self::messages::Messages;
pub use self::stages::Stages;

/// Ranks that act together.
///
/// All ranks must make the same calls in the same order. Dropping a group announces that this rank leaves.
///
/// ```
/// let group = kolo_comm::Group::from_env()?; // one rank, unless a launcher says otherwise
/// let mut numbers = [1.0f32, 2.0];
/// group.all_reduce(&mut numbers, kolo_comm::Op::Sum)?;
/// # assert_eq!(numbers, [1.0, 2.0]);
/// # Ok::<(), kolo_comm::Error>(())
/// ```
pub struct Group {
    rank: Rank,
    /// The job's rank of each rank of the group.
    members: Arc<[Rank]>,
    topology: Arc<Topology>,
    transport: &'static str,
    reach: Distance,
    shares_the_wire: bool,
    pool: Arc<Pool>,
    lending: Arc<Lending>,
    shared: Arc<Shared>,
    comm_thread: Mutex<CommThread>,
    /// Context for connecting sub-groups; `None` if the backend creates them by itself.
    context: Option<GroupContext>,
    options: Options,
}

kolo_schedule::opaque_debug!(Group { rank, members, transport });

impl Group {
    /// Returns true if peers map this group's buffers.
    pub(crate) fn shares_memory(&self) -> bool {
        self.pool.is_shared()
    }

    pub(crate) fn with_backend<R>(&self, work: impl FnOnce(&mut dyn Backend) -> R) -> R {
        work(&mut **self.shared.backend.lock())
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.members.len()
    }

    /// The job's rank of each rank of this group; errors name the job's ranks.
    pub fn members(&self) -> &[Rank] {
        &self.members
    }

    /// The nodes of the group: the sets of ranks that share memory.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns true if this rank is a summation server of its job ([`Options::server`]), so that training
    /// gives it no shards. Collectives treat it as any other rank, unless
    /// [`Contributions::with_servers`](kolo_schedule::tree::Contributions::with_servers) excludes it.
    pub fn is_server(&self) -> bool {
        self.options.server
    }

    /// Makes this rank a summation server of this group, for groups whose ranks share one [`Options`].
    pub fn into_server(mut self) -> Group {
        self.options.server = true;
        self
    }

    /// Name of the transport: `shm`, `tcp`, `shm+tcp`, `threads`, `solo` or `mpi`.
    pub fn transport(&self) -> &'static str {
        self.transport
    }

    /// True if collectives of this group and of another one of the same ranks may be in flight at once.
    pub fn shares_the_wire(&self) -> bool {
        self.shares_the_wire
    }

    /// Distance between the ranks.
    pub fn reach(&self) -> Distance {
        self.reach
    }

    /// Parameters of the network in the cost model, measured when the group formed.
    pub fn network(&self) -> Network {
        self.with_backend(|backend| backend.network())
    }

    /// Returns the algorithm chosen for a collective on `elements` elements, and why.
    pub fn explain(&self, collective: &Collective, elements: usize, dtype: DType) -> Option<Choice> {
        self.with_backend(|backend| backend.explain(collective, elements, dtype))
    }

    /// Uses `algorithm` from now on for every operation that it implements; `None` leaves the choice to
    /// the cost model. All ranks must make the same call.
    ///
    /// # Errors
    ///
    /// The algorithm cannot run an all-reduce on this group.
    pub fn use_algorithm(&self, algorithm: Option<&'static kolo_schedule::Algorithm>) -> Result<(), Error> {
        self.with_backend(|backend| backend.force(algorithm))
    }

    /// Uses `algorithm` from now on for long sums (16384 elements and more) if the cost model could choose
    /// it, so no sum changes its bits. `None` leaves the choice to the model. [`Group::use_algorithm`] has
    /// precedence. All ranks must make the same call, between the same two collectives.
    pub fn prefer_algorithm(&self, algorithm: Option<&'static kolo_schedule::Algorithm>) {
        self.with_backend(|backend| backend.prefer(algorithm));
    }

    /// Number of connections between two ranks that messages take turns on, and number of open ones
    /// ([`Options::streams`]); of the transport with the most.
    pub fn streams(&self) -> (usize, usize) {
        self.with_backend(|backend| backend.streams())
    }

    /// Spreads messages from now on over `count` connections between two ranks, at least one and at most
    /// the open ones. All ranks must make the same call, between the same two collectives.
    pub fn use_streams(&self, count: usize) {
        self.with_backend(|backend| backend.use_streams(count));
    }

    /// Returns the memory of unused buffers to the system, or where they lie on the heap to the allocator.
    pub fn forget_memory(&self) {
        self.pool.forget();
    }

    /// Time that this rank has slept inside collectives for each other rank, in rank order, since the
    /// group formed. It excludes waits of microseconds, which do not sleep, and waits inside MPI.
    pub fn waited(&self) -> Vec<Duration> {
        let here = self.members[self.rank.0];
        self.members.iter().map(|peer| self.shared.liveness.waited(here, *peer)).collect()
    }

    /// Allocates a buffer of `len` zeros that peers on this host can read in place.
    ///
    /// # Errors
    ///
    /// The operating system has no more memory, or the length overflows.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::zeroed(&self.pool, len)
    }

    /// Allocates a buffer of `len` elements of any values, for a caller that writes all that it reads. Fails
    /// as [`Group::alloc`] does.
    pub fn alloc_unspecified<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::unspecified(&self.pool, len)
    }

    /// Allocates a buffer with a copy of `data`.
    ///
    /// # Errors
    ///
    /// The operating system has no more memory.
    pub fn copied<T: Element>(&self, data: &[T]) -> Result<Buffer<T>, Error> {
        Buffer::copied(&self.pool, data)
    }

    /// Runs a collective on a buffer of this group and returns the buffer.
    ///
    /// # Errors
    ///
    /// The call is invalid ([`Error::is_refusal`]), which does not harm the group. Or a peer made another
    /// call, died, left or timed out, and the group has failed.
    pub fn run<T: Element>(&self, collective: &Collective, buffer: Buffer<T>) -> Result<Buffer<T>, Error> {
        if self.shared.queued.load(Ordering::Acquire) > 0 {
            return self.start(collective.clone(), buffer).wait();
        }
        // Nothing is queued, so this thread can run it directly.
        self.admit(&buffer)?;
        self.shared.run(collective, buffer, WaitMode::Blocking)
    }

    /// Runs a collective on a slice. Peers cannot read a slice in place, so their parts are copied, which
    /// takes longer than on a buffer of the group. After a failure the slice holds a partial result. Fails as
    /// [`Group::run`] does.
    pub fn run_on_slice<T: Element>(&self, collective: &Collective, data: &mut [T]) -> Result<(), Error> {
        // Nothing is queued, so this thread can run it directly.
        if self.shared.queued.load(Ordering::Acquire) == 0 {
            return self.run_directly_on_slice(collective, data, WaitMode::Blocking);
        }
        data.copy_from_slice(&self.run(collective, self.copied(data)?)?);
        Ok(())
    }

    /// Starts a collective on the communication thread. Collectives run in the order of their starts.
    pub fn start<T: Element>(&self, collective: Collective, buffer: Buffer<T>) -> Pending<Buffer<T>> {
        let admitted = self.admit(&buffer);
        self.start_stages(move |stages| {
            admitted?;
            stages.shared.run(&collective, buffer, WaitMode::Background)
        })
    }

    /// Checks that a collective may run on this buffer.
    #[inline]
    fn admit<T: Element>(&self, buffer: &Buffer<T>) -> Result<(), Error> {
        if buffer.belongs_to(&self.pool) { Ok(()) } else { Err(InvalidCall::ForeignBuffer.into()) }
    }

    /// Ends the group for all ranks: all their waits end with this rank's reason. MPI can do that only by
    /// ending all processes of the job, this one included.
    pub fn abandon(&self, reason: &str) {
        let rank = self.members[self.rank.0];
        self.shared.failed(Error::Abandoned { rank, reason: reason.into() });
    }
}

/// Interface for code that uses a group and fails with it: groups over device memory, elastic membership.
impl Group {
    /// Presence of the group's ranks, and the group's first failure.
    pub fn liveness(&self) -> &Liveness {
        &self.shared.liveness
    }

    /// Longest time that a rank may take to arrive.
    pub fn timeout(&self) -> Duration {
        self.options.arrival()
    }

    /// Latches a failure and reports it to the other ranks; returns the failure that counts.
    pub fn fail(&self, error: Error) -> Error {
        self.shared.failed(error)
    }

    /// Measures the pace of an elastic job's generation from now on, and limits waits for others by it.
    pub fn follow_pace(&self, pace: &Arc<Pace>) {
        self.with_backend(|backend| backend.follow(pace.clone()));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abandon("it panicked");
        }
        // Started collectives end before this rank announces that it leaves.
        self.comm_thread.lock().finish();
        self.shared.backend.lock().finish();
        match &self.shared.origin {
            GroupOrigin::Alone | GroupOrigin::Within(_) => {}
            GroupOrigin::Threads(_) => self.shared.liveness.leave(self.rank),
            // The other ranks may wait for this one forever.
            GroupOrigin::Foreign(end) => self.shared.liveness.failure().iter().for_each(end),
            GroupOrigin::Store(session) => {
                let session = session.lock().take();
                session.into_iter().for_each(|session| session.leave(LINGER));
            }
        }
    }
}
