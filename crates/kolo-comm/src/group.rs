//! Groups: ranks that act together, and what they can do together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::element::{Element, Op};
use crate::engine::{Collective, Engine, Timing};
use crate::env::Place;
use crate::error::Error;
use crate::liveness::{Liveness, culprit, lock};
use crate::membership::{self, Membership};
use crate::memory::{Backing, Buffer, Pool};
use crate::options::Options;
use crate::rank::Rank;
use crate::secure::Access;
use crate::transport::{Solo, Transport};
use crate::worker::{Outcome, Pending, Worker};

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
    world: usize,
    transport: &'static str,
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    worker: Mutex<Worker>,
}

/// What ties a rank to the others.
enum Bond {
    Alone,
    /// That many threads of one process, which share one [`Liveness`].
    Threads(usize),
    Store(Mutex<Option<Membership>>),
}

struct Shared {
    engine: Mutex<Engine>,
    liveness: Arc<Liveness>,
    /// Collectives handed to the worker and not done yet.
    queued: AtomicUsize,
    bond: Bond,
}

impl Shared {
    fn conclude<T: Element>(&self, buffer: Buffer<T>, result: Result<Timing, Error>) -> Outcome<T> {
        match result {
            Ok(timing) => Ok((buffer, timing)),
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
        if let (Error::Invalid(_), _) | (_, Some(_)) = (&error, self.liveness.failure()) {
            return self.liveness.failure().unwrap_or(error);
        }
        let error = match (&self.bond, error) {
            (Bond::Store(membership), error) => match &*lock(membership) {
                Some(membership) => membership.watch.tell(error, &self.liveness),
                None => error,
            },
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
    /// launcher, a group of one.
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, the rendezvous fails, or ranks do not arrive in time.
    pub fn from_env() -> Result<Group, Error> {
        let options = Options::from_env()?;
        match Place::from_env()? {
            None => Ok(Group::alone()),
            Some(place) => Group::join(&place, &options),
        }
    }

    /// The group of the job at `place`.
    ///
    /// # Errors
    ///
    /// The rendezvous fails, or ranks do not arrive in time.
    pub fn join(place: &Place, options: &Options) -> Result<Group, Error> {
        if place.world_size == 1 {
            return Ok(Group::alone());
        }
        let formed = membership::form(place, options.transport, options.timeout, &Access::new(options)?)?;
        let pool = Pool::new(formed.backing);
        let bond = Bond::Store(Mutex::new(Some(formed.membership)));
        Ok(Group::new(place.rank, place.world_size, formed.transport, formed.liveness, pool, bond, options))
    }

    /// A group of one.
    pub fn alone() -> Group {
        let liveness = Arc::new(Liveness::new(1));
        let pool = Pool::new(Backing::Heap);
        Group::new(Rank(0), 1, Box::new(Solo), liveness, pool, Bond::Alone, &Options::default())
    }

    /// For [`crate::threads`].
    pub(crate) fn of_threads(
        rank: Rank,
        world: usize,
        transport: Box<dyn Transport>,
        liveness: Arc<Liveness>,
        options: &Options,
    ) -> Group {
        Group::new(rank, world, transport, liveness, Pool::new(Backing::Heap), Bond::Threads(world), options)
    }

    fn new(
        rank: Rank,
        world: usize,
        transport: Box<dyn Transport>,
        liveness: Arc<Liveness>,
        pool: Arc<Pool>,
        bond: Bond,
        options: &Options,
    ) -> Group {
        let name = transport.name();
        let engine =
            Engine::new(rank, world, transport, liveness.clone(), options.timeout, options.algorithm);
        let shared =
            Arc::new(Shared { engine: Mutex::new(engine), liveness, queued: AtomicUsize::new(0), bond });
        Group { rank, world, transport: name, pool, shared, worker: Mutex::default() }
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.world
    }

    /// How the ranks talk: `shm`, `tcp`, `threads` or `solo`.
    pub fn transport(&self) -> &'static str {
        self.transport
    }

    /// A buffer of `len` zeros which peers on this host can read where it lies.
    ///
    /// # Errors
    ///
    /// The operating system has no more memory, or the length overflows.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::zeroed(&self.pool, len)
    }

    /// Runs a collective on a buffer of this group and gives it back.
    ///
    /// # Errors
    ///
    /// The call is wrong by itself ([`Error::Invalid`]; the group is not harmed), a peer called something else, died,
    /// left, or did not take part in time (the group has failed).
    pub fn run<T: Element>(
        &self,
        collective: &Collective,
        mut buffer: Buffer<T>,
    ) -> Result<Buffer<T>, Error> {
        if self.shared.queued.load(Ordering::Acquire) > 0 {
            return self.start(collective.clone(), buffer).wait();
        }
        // Nothing is queued, so this thread can do it without handing it over.
        self.admit(&buffer)?;
        let result = lock(&self.shared.engine).run(collective, &mut buffer);
        self.shared.conclude(buffer, result).map(|(buffer, _)| buffer)
    }

    /// Starts a collective on the communication thread. Collectives run in the order in which they were started.
    pub fn start<T: Element>(&self, collective: Collective, mut buffer: Buffer<T>) -> Pending<T> {
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
            let result = lock(&shared.engine).run(&collective, &mut buffer);
            shared.queued.fetch_sub(1, Ordering::AcqRel);
            // Nobody waits for it any more: then nobody needs it.
            let _ = sender.send(shared.conclude(buffer, result));
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

    fn with_copy<T: Element>(&self, data: &[T]) -> Result<Buffer<T>, Error> {
        let mut buffer = self.alloc(data.len())?;
        buffer.copy_from_slice(data);
        Ok(buffer)
    }

    /// Combines `data` element by element over all ranks; every rank gets the same bits.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn all_reduce<T: Element>(&self, data: &mut [T], op: Op) -> Result<(), Error> {
        data.copy_from_slice(&self.run(&Collective::AllReduce(op), self.with_copy(data)?)?);
        Ok(())
    }

    /// Combines `input` over all ranks; rank r gets chunk r of the result. `input` is world size × `output` long.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise as [`Group::run`].
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<(), Error> {
        self.chunks("reduce_scatter", input.len(), output.len())?;
        let result = self.run(&Collective::ReduceScatter(op), self.with_copy(input)?)?;
        output.copy_from_slice(&result[self.rank.0 * output.len()..][..output.len()]);
        Ok(())
    }

    /// Every rank gets the inputs of all, in rank order. `output` is world size × `input` long.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise as [`Group::run`].
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        self.chunks("all_gather", output.len(), input.len())?;
        let mut buffer = self.alloc(output.len())?;
        buffer[self.rank.0 * input.len()..][..input.len()].copy_from_slice(input);
        output.copy_from_slice(&self.run(&Collective::AllGather, buffer)?);
        Ok(())
    }

    fn chunks(&self, call: &str, long: usize, short: usize) -> Result<(), Error> {
        if Some(long) == short.checked_mul(self.world) {
            return Ok(());
        }
        let world = self.world;
        Err(Error::Invalid(format!("{call}: {long} elements are not {world} ranks × {short} elements")))
    }

    /// Every rank gets the root's `data`.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: Rank) -> Result<(), Error> {
        data.copy_from_slice(&self.run(&Collective::Broadcast(root), self.with_copy(data)?)?);
        Ok(())
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn barrier(&self) -> Result<(), Error> {
        self.all_reduce(&mut [0u8], Op::Max)
    }

    /// Ends the group for everybody: all their waits end with this rank's reason.
    pub fn abandon(&self, reason: &str) {
        self.shared.failed(Error::Abandoned { rank: self.rank, reason: reason.into() });
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abandon("it panicked");
        }
        // What has been started ends before the goodbye.
        lock(&self.worker).finish();
        match &self.shared.bond {
            Bond::Alone => {}
            Bond::Threads(_) => self.shared.liveness.leave(self.rank),
            Bond::Store(membership) => {
                let membership = lock(membership).take();
                membership.into_iter().for_each(|membership| membership.leave(LINGER));
            }
        }
    }
}

/// How long rank 0 stays when it is done before the others: they would lose sight of each other.
const LINGER: Duration = Duration::from_secs(10);
