//! Groups: ranks that act together. A group is formed ([`forming`]), measures its network ([`measure`], and
//! [`link_rates`] where links may differ), and runs collectives: on buffers (here), on slices
//! ([`operations`], [`coalesced`]), on any value that serde can write ([`values`]), several as one
//! ([`stages`]); or makes sums that are added when they are read ([`deferred`]).

mod coalesced;
mod deferred;
mod forming;
mod link_rates;
mod measure;
mod operations;
mod split;
mod stages;
mod values;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::backend::Backend;
use crate::collective::Collective;
use crate::comm_thread::CommThread;
use crate::connect::StoreSession;
use crate::element::Element;
use crate::memory::{Buffer, Lending, Memory, Pool};
use crate::options::Options;
use crate::pace::Pace;
use crate::pending::Pending;
use crate::transport::{Distance, GroupContext};
use crate::wait::WaitMode;
use kolo_rendezvous::{Error, InvalidCall, Liveness, culprit};
use kolo_schedule::{Choice, DType, Network, Rank, Topology};
use parking_lot::Mutex;

pub use self::deferred::{Deferred, SumParts};
pub use self::stages::Stages;

/// Ranks that act together.
///
/// All ranks must make the same calls in the same order. Dropping a group says goodbye to the others.
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
    /// The job's rank of each of the group's.
    members: Arc<[Rank]>,
    topology: Arc<Topology>,
    transport: &'static str,
    reach: Distance,
    shares_the_wire: bool,
    pool: Arc<Pool>,
    lending: Arc<Lending>,
    shared: Arc<Shared>,
    comm_thread: Mutex<CommThread>,
    /// What sub-groups are connected with; `None` if the backend makes them by itself.
    context: Option<GroupContext>,
    options: Options,
}

/// Where a group comes from, which is what ties its ranks to each other.
enum GroupOrigin {
    Alone,
    /// That many threads of one process, which share one [`Liveness`].
    Threads(usize),
    Store(Mutex<Option<StoreSession>>),
    /// A backend that has formed the group by its own means, and its way to end the job.
    Foreign(fn(&Error)),
    /// A sub-group lives and dies with the group it was split from.
    Within(Arc<Shared>),
}

struct Shared {
    /// This rank's, of the job's.
    rank: Rank,
    backend: Mutex<Box<dyn Backend>>,
    liveness: Arc<Liveness>,
    /// Collectives handed to the communication thread and not done yet.
    queued: AtomicUsize,
    origin: GroupOrigin,
}

impl Shared {
    /// Runs a collective to its end. After a failure every later one fails in the same way.
    fn run<T: Element>(
        &self,
        collective: &Collective,
        buffer: Buffer<T>,
        mode: WaitMode,
    ) -> Result<Buffer<T>, Error> {
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        // A peer may be reading it until the collective is over, also where that ends in a panic.
        let mut buffer = ManuallyDrop::new(buffer);
        let result = self.backend.lock().run(collective, &buffer.erased(), mode);
        match result {
            Ok(()) => Ok(ManuallyDrop::into_inner(buffer)),
            Err(error) if error.is_refusal() => {
                drop(ManuallyDrop::into_inner(buffer));
                Err(self.failed(error))
            }
            Err(error) => {
                // A peer that has not noticed yet may still be reading it: another process in pages of its
                // own, so that these can go with the group; a thread, or MPI, where it lies, so that these
                // are never used again.
                if self.is_of_processes() {
                    ManuallyDrop::into_inner(buffer).abandon()
                }
                Err(self.failed(error))
            }
        }
    }

    /// As [`Shared::run`], on a slice, if the backend runs on slices; says whether it does.
    fn run_on_slice<T: Element>(&self, collective: &Collective, data: &mut [T]) -> Result<bool, Error> {
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        let mut backend = self.backend.lock();
        if !backend.runs_on_slices() {
            return Ok(false);
        }
        let result = backend.run(collective, &Memory::of_slice(data), WaitMode::Blocking);
        drop(backend);
        result.map(|()| true).map_err(|error| self.failed(error))
    }

    fn is_of_processes(&self) -> bool {
        match &self.origin {
            GroupOrigin::Store(_) => true,
            GroupOrigin::Within(parent) => parent.is_of_processes(),
            GroupOrigin::Alone | GroupOrigin::Threads(_) | GroupOrigin::Foreign(_) => false,
        }
    }

    /// Latches a failure, tells the others, and returns the one that stands.
    ///
    /// A wrong call harms nobody but the caller, because nothing has been sent.
    fn failed(&self, error: Error) -> Error {
        if let GroupOrigin::Within(parent) = &self.origin {
            return parent.failed(error);
        }
        if let Some(first) = self.liveness.failure() {
            return first;
        }
        if error.is_refusal() {
            return error;
        }
        if error.is_of_this_process() {
            return self.failed_here(error);
        }
        let error = match (&self.origin, error) {
            (GroupOrigin::Store(session), error) => match &*session.lock() {
                Some(session) => session.watch.report(error, &self.liveness),
                None => error,
            },
            (GroupOrigin::Foreign(end), error @ Error::Abandoned { .. }) => {
                end(&error);
                error
            }
            (GroupOrigin::Threads(world), Error::Timeout { rank, during, waited }) => {
                let rank = culprit(rank, *world, |rank| self.liveness.waiting_for(rank));
                Error::Timeout { rank, during, waited }
            }
            (_, error) => error,
        };
        self.liveness.fail(error)
    }

    /// Latches that this process cannot go on. To the others it has given up: they can go on without it, and
    /// must not take its failure for their own.
    fn failed_here(&self, error: Error) -> Error {
        let told = Error::Abandoned { rank: self.rank, reason: error.to_string() };
        match &self.origin {
            GroupOrigin::Threads(_) => {
                self.liveness.fail(told);
                error
            }
            GroupOrigin::Store(session) => {
                // Before the others' news come back, of which the first one counts.
                let first = self.liveness.fail(error);
                if let Some(session) = &*session.lock() {
                    session.watch.report(told, &self.liveness);
                }
                first
            }
            GroupOrigin::Alone | GroupOrigin::Foreign(_) | GroupOrigin::Within(_) => {
                self.liveness.fail(error)
            }
        }
    }
}

impl Group {
    /// Whether peers map this group's buffers.
    pub(crate) fn shares_memory(&self) -> bool {
        self.pool.is_shared()
    }

    pub(crate) fn with_backend<R>(&self, work: impl FnOnce(&mut dyn Backend) -> R) -> R {
        work(&mut **self.shared.backend.lock())
    }

    /// This rank, in this group.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.members.len()
    }

    /// The job's rank of each of this group's; errors name those.
    pub fn members(&self) -> &[Rank] {
        &self.members
    }

    /// Which ranks share memory.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether this rank is a summation server of its job, as [`Options::server`] says: training gives it no
    /// shards. To collectives it is a rank like any other, unless
    /// [`Contributions::with_servers`](kolo_schedule::tree::Contributions::with_servers) say otherwise.
    pub fn is_server(&self) -> bool {
        self.options.server
    }

    /// This group, of which this rank is a summation server: for groups that are made without [`Options`] of
    /// each rank's own.
    pub fn into_server(mut self) -> Group {
        self.options.server = true;
        self
    }

    /// How the ranks talk: `shm`, `tcp`, `shm+tcp`, `threads`, `solo` or `mpi`.
    pub fn transport(&self) -> &'static str {
        self.transport
    }

    /// Whether collectives of this group and of another one of the same ranks may be under way at once.
    pub fn shares_the_wire(&self) -> bool {
        self.shares_the_wire
    }

    /// How far apart the ranks are.
    pub fn reach(&self) -> Distance {
        self.reach
    }

    /// What the cost model knows of the network: measured when the group formed.
    pub fn network(&self) -> Network {
        self.with_backend(|backend| backend.network())
    }

    /// Which algorithm is picked for a collective on so many elements, and why.
    pub fn explain(&self, collective: &Collective, elements: usize, dtype: DType) -> Option<Choice> {
        self.with_backend(|backend| backend.explain(collective, elements, dtype))
    }

    /// From now on uses that algorithm wherever it does the operation; `None` leaves the choice to the cost
    /// model. All ranks must call it alike.
    ///
    /// # Errors
    ///
    /// It cannot do an all-reduce on this group.
    pub fn use_algorithm(&self, algorithm: Option<&'static kolo_schedule::Algorithm>) -> Result<(), Error> {
        self.with_backend(|backend| backend.force(algorithm))
    }

    /// From now on uses that algorithm for long sums, of 16384 elements and more, where the cost model could
    /// pick it: so no sum has other bits by it. `None` leaves the choice to the model.
    /// [`Group::use_algorithm`] has precedence. All ranks must call it alike, between the same two
    /// collectives.
    pub fn prefer_algorithm(&self, algorithm: Option<&'static kolo_schedule::Algorithm>) {
        self.with_backend(|backend| backend.prefer(algorithm));
    }

    /// Connections between two ranks over which messages go in turn, and how many of them there are
    /// ([`Options::streams`]); of the transport that has most.
    pub fn streams(&self) -> (usize, usize) {
        self.with_backend(|backend| backend.streams())
    }

    /// From now on messages go over so many of the connections between two ranks, at least one and at most
    /// those that there are. All ranks must call it alike, between the same two collectives.
    pub fn use_streams(&self, count: usize) {
        self.with_backend(|backend| backend.use_streams(count));
    }

    /// Gives memory that no buffer uses back to the system, where no peer may have mapped it.
    pub fn forget_memory(&self) {
        self.pool.forget();
    }

    /// For how long this rank has slept inside collectives until each other rank sent or took something, in
    /// rank order, since the group formed. Waits of microseconds, which are spent awake, do not count, nor
    /// does what MPI does.
    pub fn waited(&self) -> Vec<Duration> {
        let here = self.members[self.rank.0];
        self.members.iter().map(|peer| self.shared.liveness.waited(here, *peer)).collect()
    }

    /// A buffer of `len` zeros which peers on this host can read where it lies.
    ///
    /// # Errors
    ///
    /// The operating system has no more memory, or the length overflows.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::zeroed(&self.pool, len)
    }

    /// A buffer that holds a copy of `data`.
    ///
    /// # Errors
    ///
    /// The operating system has no more memory.
    pub fn copied<T: Element>(&self, data: &[T]) -> Result<Buffer<T>, Error> {
        Buffer::copied(&self.pool, data)
    }

    /// Runs a collective on a buffer of this group and gives it back.
    ///
    /// # Errors
    ///
    /// The call is wrong by itself ([`Error::is_refusal`]; the group is not harmed), a peer called something
    /// else, died, left, or did not take part in time (the group has failed).
    pub fn run<T: Element>(&self, collective: &Collective, buffer: Buffer<T>) -> Result<Buffer<T>, Error> {
        if self.shared.queued.load(Ordering::Acquire) > 0 {
            return self.start(collective.clone(), buffer).wait();
        }
        // Nothing is queued, so this thread can do it without handing it over.
        self.admit(&buffer)?;
        self.shared.run(collective, buffer, WaitMode::Blocking)
    }

    /// Runs a collective on a slice. Peers cannot read it where it lies: what they are to have is copied for
    /// them piece by piece, which takes longer than on a buffer of the group. After a failure it holds
    /// whatever had come by then.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn run_on_slice<T: Element>(&self, collective: &Collective, data: &mut [T]) -> Result<(), Error> {
        // Nothing is queued, so this thread can do it without handing it over.
        if self.shared.queued.load(Ordering::Acquire) == 0 && self.shared.run_on_slice(collective, data)? {
            return Ok(());
        }
        data.copy_from_slice(&self.run(collective, self.copied(data)?)?);
        Ok(())
    }

    /// Starts a collective on the communication thread. Collectives run in the order in which they were
    /// started.
    pub fn start<T: Element>(&self, collective: Collective, buffer: Buffer<T>) -> Pending<Buffer<T>> {
        let admitted = self.admit(&buffer);
        self.start_stages(move |stages| {
            admitted?;
            stages.shared.run(&collective, buffer, WaitMode::Background)
        })
    }

    /// Whether a collective on this buffer may begin at all.
    #[inline]
    fn admit<T: Element>(&self, buffer: &Buffer<T>) -> Result<(), Error> {
        if buffer.belongs_to(&self.pool) { Ok(()) } else { Err(InvalidCall::ForeignBuffer.into()) }
    }

    /// Ends the group for everybody: all their waits end with this rank's reason. MPI can do that only by
    /// ending all processes of the job, this one included.
    pub fn abandon(&self, reason: &str) {
        let rank = self.members[self.rank.0];
        self.shared.failed(Error::Abandoned { rank, reason: reason.into() });
    }
}

/// For whoever stands beside a group and fails with it: groups over device memory, elastic membership.
impl Group {
    /// Who of the group is there, and its first failure.
    pub fn liveness(&self) -> &Liveness {
        &self.shared.liveness
    }

    /// How long a rank may take to arrive.
    pub fn timeout(&self) -> Duration {
        self.options.arrival()
    }

    /// Latches a failure and tells the others; returns the one that stands.
    pub fn fail(&self, error: Error) -> Error {
        self.shared.failed(error)
    }

    /// From now on measures the pace of an elastic job's generation, and waits for others no longer than it
    /// allows.
    pub fn follow_pace(&self, pace: &Arc<Pace>) {
        self.with_backend(|backend| backend.follow(pace.clone()));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abandon("it panicked");
        }
        // What has been started ends before the goodbye.
        self.comm_thread.lock().finish();
        self.shared.backend.lock().finish();
        match &self.shared.origin {
            GroupOrigin::Alone | GroupOrigin::Within(_) => {}
            GroupOrigin::Threads(_) => self.shared.liveness.leave(self.rank),
            // The others may wait for this rank for ever.
            GroupOrigin::Foreign(end) => self.shared.liveness.failure().iter().for_each(end),
            GroupOrigin::Store(session) => {
                let session = session.lock().take();
                session.into_iter().for_each(|session| session.leave(LINGER));
            }
        }
    }
}

/// How long rank 0 stays when it is done before the others: they would lose sight of each other.
const LINGER: Duration = Duration::from_secs(10);
