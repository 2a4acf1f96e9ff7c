//! Groups: ranks that act together, and what they can do together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::element::{Element, Op};
use crate::engine::{Collective, Engine, Timing};
use crate::env::{self, Place};
use crate::error::Error;
use crate::liveness::{Liveness, culprit, lock};
use crate::membership::{self, Membership, TransportChoice};
use crate::memory::{Backing, Buffer, Pool};
use crate::rank::Rank;
use crate::schedule::{ALGORITHMS, Algorithm};
use crate::transport::{Solo, Transport};

/// How a group is formed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Overrides the choice of transport: shared memory where all ranks are on one host, else TCP.
    pub transport: Option<TransportChoice>,
    /// How long a rank waits for others, at the rendezvous and in a collective.
    pub timeout: Duration,
    /// Overrides the choice of all-reduce algorithm.
    pub algorithm: Option<&'static Algorithm>,
}

impl Default for Options {
    fn default() -> Self {
        Options { transport: None, timeout: Duration::from_secs(300), algorithm: None }
    }
}

impl Options {
    /// Reads `KOLO_TRANSPORT`, `KOLO_TIMEOUT` and `KOLO_ALGORITHM`.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable that cannot be understood.
    pub fn from_env() -> Result<Options, Error> {
        let mut options = Options::default();
        if let Ok(text) = std::env::var(env::TRANSPORT) {
            let choice =
                text.parse().map_err(|problem: String| Error::environment(env::TRANSPORT, problem))?;
            options.transport = Some(choice);
        }
        if let Ok(text) = std::env::var(env::TIMEOUT) {
            let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s < 1e9);
            let problem = format!("is `{text}`; it must be a number of seconds greater than 0");
            let seconds = seconds.ok_or_else(|| Error::environment(env::TIMEOUT, problem))?;
            options.timeout = Duration::from_secs_f64(seconds);
        }
        if let Ok(text) = std::env::var(env::ALGORITHM) {
            let known: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
            let problem = format!("is `{text}`; known are {}", known.join(", "));
            let found = ALGORITHMS.iter().find(|algorithm| algorithm.name == text);
            options.algorithm = Some(found.ok_or_else(|| Error::environment(env::ALGORITHM, problem))?);
        }
        Ok(options)
    }
}

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
    worker: Mutex<Option<Worker>>,
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

type Job = Box<dyn FnOnce(&Shared) + Send>;

/// The communication thread.
struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

/// A collective that has been started.
#[must_use = "a collective is only over when it has been waited for"]
pub struct Pending<T> {
    result: Receiver<Outcome<T>>,
    ready: Option<Outcome<T>>,
}

type Outcome<T> = Result<(Buffer<T>, Timing), Error>;

impl<T: Element> Pending<T> {
    /// Waits for the end and gives the buffer back.
    ///
    /// # Errors
    ///
    /// What ended the collective: the first failure of the group.
    pub fn wait(self) -> Result<Buffer<T>, Error> {
        self.wait_timed().map(|(buffer, _)| buffer)
    }

    /// As [`Pending::wait`], and says when the collective ran.
    ///
    /// # Errors
    ///
    /// As [`Pending::wait`].
    pub fn wait_timed(self) -> Result<(Buffer<T>, Timing), Error> {
        let lost = |_| Err(Error::Invalid("the communication thread has panicked".into()));
        self.ready.unwrap_or_else(|| self.result.recv().unwrap_or_else(lost))
    }

    /// Whether it is over, so that waiting returns at once.
    pub fn is_over(&mut self) -> bool {
        if self.ready.is_none() {
            self.ready = self.result.try_recv().ok();
        }
        self.ready.is_some()
    }
}

impl Group {
    /// The group of the job this process belongs to, by the environment of its launcher (see [`env`]); without a
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
        let formed = membership::form(place, options.transport, options.timeout)?;
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
        Group { rank, world, transport: name, pool, shared, worker: Mutex::new(None) }
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
        self.own(&buffer)?;
        let result = lock(&self.shared.engine).run(collective, &mut buffer);
        result.map(|_| buffer).map_err(|error| self.shared.failed(error))
    }

    /// Starts a collective on the communication thread. Collectives run in the order in which they were started.
    pub fn start<T: Element>(&self, collective: Collective, mut buffer: Buffer<T>) -> Pending<T> {
        let (sender, result) = mpsc::channel();
        if let Err(error) = self.own(&buffer) {
            // The receiver is in this function's hands.
            let _ = sender.send(Err(error));
            return Pending { result, ready: None };
        }
        self.shared.queued.fetch_add(1, Ordering::AcqRel);
        let job: Job = Box::new(move |shared| {
            let outcome = lock(&shared.engine).run(&collective, &mut buffer);
            shared.queued.fetch_sub(1, Ordering::AcqRel);
            let outcome = outcome.map(|timing| (buffer, timing)).map_err(|error| shared.failed(error));
            // Nobody waits for it any more: then nobody needs it.
            let _ = sender.send(outcome);
        });
        self.submit(job);
        Pending { result, ready: None }
    }

    fn submit(&self, job: Job) {
        let mut worker = lock(&self.worker);
        let running = worker.get_or_insert_with(|| {
            let (jobs, queue) = mpsc::channel::<Job>();
            let shared = self.shared.clone();
            let work = move || queue.into_iter().for_each(|job| job(&shared));
            let thread = std::thread::Builder::new().name("kolo-comm".into()).spawn(work);
            Worker { jobs, thread: thread.expect("the system can start one thread") }
        });
        // A worker that has panicked drops the job; whoever waits for it is told.
        let _ = running.jobs.send(job);
    }

    fn own<T: Element>(&self, buffer: &Buffer<T>) -> Result<(), Error> {
        if buffer.belongs_to(&self.pool) {
            return Ok(());
        }
        Err(Error::Invalid("the buffer belongs to another group; allocate it from this one".into()))
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
        if let Some(Worker { jobs, thread }) = lock(&self.worker).take() {
            drop(jobs);
            // It ends with an error only if a collective panicked, which has been printed.
            let _ = thread.join();
        }
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
