//! Groups: ranks that act together. What they can do together stands in [`crate::calls`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::backend::{Backend, BackendChoice, Foreign};
use crate::collective::Collective;
use crate::deadline::Deadline;
use crate::element::{DType, Element};
use crate::engine::Engine;
use crate::env::{self, Place};
use crate::error::Error;
use crate::liveness::{Liveness, culprit, lock};
use crate::membership::{self, Founded, Ground, Membership};
use crate::memory::{Backing, Buffer, Pool};
use crate::mpi;
use crate::options::Options;
use crate::rank::Rank;
use crate::schedule::{Choice, Network};
use crate::topology::Topology;
use crate::worker::{Pending, Timing, Worker};

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
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    worker: Mutex<Worker>,
    /// What sub-groups are founded on; `None` if the backend makes them by itself.
    pub(crate) ground: Option<Ground>,
    options: Options,
}

/// What ties a rank to the others.
enum Bond {
    Alone,
    /// That many threads of one process, which share one [`Liveness`].
    Threads(usize),
    Store(Mutex<Option<Membership>>),
    /// A backend that has formed the group by its own means, and its way to end the job.
    Foreign(fn(&Error)),
    /// A sub-group lives and dies with the group it was split from.
    Within(Arc<Shared>),
}

/// Who a group's ranks are.
struct Seats {
    rank: Rank,
    /// The job's rank of each of the group's.
    members: Arc<[Rank]>,
    topology: Arc<Topology>,
}

struct Shared {
    backend: Mutex<Box<dyn Backend>>,
    liveness: Arc<Liveness>,
    /// Collectives handed to the worker and not done yet.
    queued: AtomicUsize,
    bond: Bond,
}

impl Shared {
    /// Runs a collective to its end. After a failure every later one fails in the same way.
    fn run<T: Element>(&self, collective: &Collective, mut buffer: Buffer<T>) -> Result<Buffer<T>, Error> {
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        let result = lock(&self.backend).run(collective, &buffer.erased());
        match result {
            Ok(()) => Ok(buffer),
            Err(error @ Error::Invalid(_)) => Err(self.failed(error)),
            Err(error) => {
                // A peer that has not noticed yet may still be reading it: never to be used again.
                std::mem::forget(buffer);
                Err(self.failed(error))
            }
        }
    }

    /// Latches a failure, tells the others, and returns the one that stands.
    ///
    /// A wrong call harms nobody but the caller, because nothing has been sent.
    fn failed(&self, error: Error) -> Error {
        if let Bond::Within(parent) = &self.bond {
            return parent.failed(error);
        }
        if let (Error::Invalid(_), _) | (_, Some(_)) = (&error, self.liveness.failure()) {
            return self.liveness.failure().unwrap_or(error);
        }
        let error = match (&self.bond, error) {
            (Bond::Store(membership), error) => match &*lock(membership) {
                Some(membership) => membership.watch.tell(error, &self.liveness),
                None => error,
            },
            (Bond::Foreign(end), error @ Error::Abandoned { .. }) => {
                end(&error);
                error
            }
            (Bond::Threads(world), Error::Timeout { rank, during, waited }) => {
                let rank = culprit(rank, *world, |rank| self.liveness.waiting_for(rank));
                Error::Timeout { rank, during, waited }
            }
            (_, error) => error,
        };
        self.liveness.fail(error)
    }
}

impl Group {
    /// The group of the job this process belongs to, by the environment of its launcher (see [`crate::env`]); without a
    /// launcher, a group of one. With `KOLO_BACKEND=mpi` MPI says who belongs to it (see [`crate::mpi`]).
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, the rendezvous fails, or ranks do not arrive in time.
    pub fn from_env() -> Result<Group, Error> {
        Group::of_job(&Options::from_env()?)
    }

    /// As [`Group::from_env`], but with these options instead of those that the environment gives.
    ///
    /// # Errors
    ///
    /// As [`Group::from_env`].
    pub fn of_job(options: &Options) -> Result<Group, Error> {
        if options.backend == BackendChoice::Mpi {
            return Group::foreign(mpi::form(env::seat()?, options)?, options);
        }
        match Place::from_env()? {
            None => Ok(Group::alone()),
            Some(place) => Group::join(&place, options),
        }
    }

    /// The group of the job at `place`. MPI meets without it, but must give this process the same rank.
    ///
    /// # Errors
    ///
    /// The rendezvous fails, ranks do not arrive in time, or the algorithm asked for cannot be used on this group.
    pub fn join(place: &Place, options: &Options) -> Result<Group, Error> {
        if options.backend == BackendChoice::Mpi {
            let seat = (place.rank, place.world_size);
            return Group::foreign(mpi::form(Some(seat), options)?, options);
        }
        if place.world_size == 1 {
            return Ok(Group::alone());
        }
        let formed = membership::form(place, options)?;
        let members = (0..place.world_size).map(Rank).collect();
        let bond = Bond::Store(Mutex::new(Some(formed.membership)));
        let pool = Pool::new(formed.founded.backing);
        Group::native(place.rank, members, formed.founded, formed.liveness, pool, bond, options)?.measured()
    }

    /// A group of one.
    pub fn alone() -> Group {
        let liveness = Arc::new(Liveness::new(1));
        let (bond, options) = (Bond::Alone, Options::default());
        let pool = Pool::new(Backing::Heap);
        Group::native(Rank(0), [Rank(0)].into(), Founded::alone(), liveness, pool, bond, &options)
            .expect("a group of one is asked for nothing special")
    }

    /// For [`crate::threads`].
    pub(crate) fn of_threads(
        rank: Rank,
        founded: Founded,
        liveness: Arc<Liveness>,
        options: &Options,
    ) -> Result<Group, Error> {
        let world = founded.topology.world();
        let (members, bond) = ((0..world).map(Rank).collect(), Bond::Threads(world));
        let pool = Pool::new(founded.backing);
        Group::native(rank, members, founded, liveness, pool, bond, options)
    }

    fn native(
        rank: Rank,
        members: Arc<[Rank]>,
        founded: Founded,
        liveness: Arc<Liveness>,
        pool: Arc<Pool>,
        bond: Bond,
        options: &Options,
    ) -> Result<Group, Error> {
        let Founded { transport, topology, ground, .. } = founded;
        let mut engine = Engine::new(
            rank,
            members.clone(),
            topology.clone(),
            transport,
            liveness.clone(),
            Deadline::new(options.timeout),
        );
        if members.len() > 1
            && let Err(error) = engine.force(options.algorithm)
        {
            // All ranks refuse alike; rank 0 keeps the store until all have heard all they need to see it.
            if let Bond::Store(membership) = bond {
                lock(&membership).take().into_iter().for_each(|membership| membership.leave(LINGER));
            }
            return Err(error);
        }
        let seats = Seats { rank, members, topology };
        Ok(Group::over(Box::new(engine), seats, Some(ground), liveness, pool, bond, options))
    }

    /// A group that a backend has formed by its own means.
    fn foreign(formed: Foreign, options: &Options) -> Result<Group, Error> {
        let Foreign { backend, rank, world, node, end } = formed;
        let members = (0..world).map(Rank).collect();
        let seats = Seats { rank, members, topology: Arc::new(Topology::separate(world)) };
        let liveness = Arc::new(Liveness::new(world));
        let pool = Pool::new(Backing::Heap);
        let mut group = Group::over(backend, seats, None, liveness, pool, Bond::Foreign(end), options);
        let nodes = group.all_gather_varied(node.as_bytes())?;
        group.topology = Arc::new(Topology::of_names(&nodes));
        Ok(group)
    }

    fn over(
        backend: Box<dyn Backend>,
        seats: Seats,
        ground: Option<Ground>,
        liveness: Arc<Liveness>,
        pool: Arc<Pool>,
        bond: Bond,
        options: &Options,
    ) -> Group {
        let Seats { rank, members, topology } = seats;
        let transport = backend.name();
        let (backend, queued) = (Mutex::new(backend), AtomicUsize::new(0));
        let shared = Arc::new(Shared { backend, liveness, queued, bond });
        let (worker, options) = (Mutex::default(), options.clone());
        Group { rank, members, topology, transport, pool, shared, worker, ground, options }
    }

    /// The sub-group of some ranks of this group, on ground that they have prepared together.
    pub(crate) fn within(&self, rank: Rank, members: &[Rank], founded: Founded) -> Result<Group, Error> {
        let members: Arc<[Rank]> = members.iter().map(|member| self.members[member.0]).collect();
        let mut options = self.options.clone();
        // What was asked for the whole group may be impossible on a part of it.
        options.algorithm = None;
        let (liveness, bond) = (self.shared.liveness.clone(), Bond::Within(self.shared.clone()));
        let group = Group::native(rank, members, founded, liveness, self.pool.clone(), bond, &options)?;
        let network = self.network();
        group.with_engine(|engine| engine.learn(network));
        if group.world_size() > 1 {
            // The same wish, where it can be granted.
            group.with_engine(|engine| engine.force(self.options.algorithm).is_ok());
        }
        Ok(group)
    }

    /// A backend for some ranks of this group, among them this one. All ranks call it, each with its own companions.
    pub(crate) fn split_backend(&self, rank: Rank, members: &[Rank]) -> Result<Box<dyn Backend>, Error> {
        let result = lock(&self.shared.backend).split(rank, members);
        result.map_err(|error| self.shared.failed(error))
    }

    /// The sub-group of some ranks of this group, over the backend that they have split off.
    pub(crate) fn beside(&self, rank: Rank, members: &[Rank], backend: Box<dyn Backend>) -> Group {
        let nodes: Vec<usize> = members.iter().map(|member| self.topology.node_of(*member)).collect();
        let topology = Arc::new(Topology::of_names(&nodes));
        let members = members.iter().map(|member| self.members[member.0]).collect();
        let (liveness, bond) = (self.shared.liveness.clone(), Bond::Within(self.shared.clone()));
        let seats = Seats { rank, members, topology };
        Group::over(backend, seats, None, liveness, self.pool.clone(), bond, &self.options)
    }

    /// Whether peers map this group's buffers.
    pub(crate) fn shares_memory(&self) -> bool {
        self.pool.is_shared()
    }

    /// Gives memory that is not in use back to the system.
    pub(crate) fn forget_memory(&self) {
        self.pool.forget();
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.shared.liveness
    }

    pub(crate) fn with_engine<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        lock(&self.shared.backend).as_native().map(work)
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

    /// How the ranks talk: `shm`, `tcp`, `shm+tcp`, `threads`, `solo` or `mpi`.
    pub fn transport(&self) -> &'static str {
        self.transport
    }

    /// What the cost model knows of the network: measured when the group formed.
    pub fn network(&self) -> Network {
        self.with_engine(|engine| engine.network.clone()).unwrap_or_default()
    }

    /// Which algorithm is picked for a collective on so many elements, and why.
    pub fn explain(&self, collective: &Collective, elements: usize, dtype: DType) -> Option<Choice> {
        self.with_engine(|engine| engine.explain(collective, elements, dtype))
    }

    /// From now on uses that algorithm wherever it does the operation; `None` leaves the choice to the cost model. All
    /// ranks must call it alike.
    ///
    /// # Errors
    ///
    /// It cannot do an all-reduce on this group.
    pub fn use_algorithm(&self, algorithm: Option<&'static crate::schedule::Algorithm>) -> Result<(), Error> {
        self.with_engine(|engine| engine.force(algorithm)).unwrap_or(Ok(()))
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
    /// The call is wrong by itself ([`Error::Invalid`]; the group is not harmed), a peer called something else, died,
    /// left, or did not take part in time (the group has failed).
    pub fn run<T: Element>(&self, collective: &Collective, buffer: Buffer<T>) -> Result<Buffer<T>, Error> {
        if self.shared.queued.load(Ordering::Acquire) > 0 {
            return self.start(collective.clone(), buffer).wait();
        }
        // Nothing is queued, so this thread can do it without handing it over.
        self.admit(&buffer)?;
        self.shared.run(collective, buffer)
    }

    /// Starts a collective on the communication thread. Collectives run in the order in which they were started.
    pub fn start<T: Element>(&self, collective: Collective, buffer: Buffer<T>) -> Pending<T> {
        let (sender, pending) = Pending::new();
        let mut worker = lock(&self.worker);
        if let Err(error) = self.admit(&buffer).and_then(|()| worker.ensure_started()) {
            // The receiver is in this function's hands.
            let _ = sender.send(Err(error));
            return pending;
        }
        let shared = self.shared.clone();
        shared.queued.fetch_add(1, Ordering::AcqRel);
        worker.submit(Box::new(move || {
            let started = Instant::now();
            let result = shared.run(&collective, buffer);
            let timing = Timing { started, ended: Instant::now() };
            shared.queued.fetch_sub(1, Ordering::AcqRel);
            // Nobody waits for it any more: then nobody needs it.
            let _ = sender.send(result.map(|buffer| (buffer, timing)));
        }));
        pending
    }

    /// Whether a collective on this buffer may begin at all.
    fn admit<T: Element>(&self, buffer: &Buffer<T>) -> Result<(), Error> {
        match self.shared.liveness.failure() {
            Some(error) => Err(error),
            None if buffer.belongs_to(&self.pool) => Ok(()),
            None => {
                Err(Error::Invalid("the buffer belongs to another group; allocate it from this one".into()))
            }
        }
    }

    /// Ends the group for everybody: all their waits end with this rank's reason. MPI can do that only by ending all
    /// processes of the job, this one included.
    pub fn abandon(&self, reason: &str) {
        let rank = self.members[self.rank.0];
        self.shared.failed(Error::Abandoned { rank, reason: reason.into() });
    }
}

/// For a group over device memory, which stands beside this one and fails with it.
#[cfg(feature = "nccl")]
impl Group {
    pub(crate) fn timeout(&self) -> Duration {
        self.options.arrival()
    }

    /// Latches a failure and tells the others; returns the one that stands.
    pub(crate) fn fail(&self, error: Error) -> Error {
        self.shared.failed(error)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abandon("it panicked");
        }
        // What has been started ends before the goodbye.
        lock(&self.worker).finish();
        lock(&self.shared.backend).finish();
        match &self.shared.bond {
            Bond::Alone | Bond::Within(_) => {}
            Bond::Threads(_) => self.shared.liveness.leave(self.rank),
            // The others may wait for this rank for ever.
            Bond::Foreign(end) => self.shared.liveness.failure().iter().for_each(end),
            Bond::Store(membership) => {
                let membership = lock(membership).take();
                membership.into_iter().for_each(|membership| membership.leave(LINGER));
            }
        }
    }
}

/// How long rank 0 stays when it is done before the others: they would lose sight of each other.
const LINGER: Duration = Duration::from_secs(10);
