//! A worker of a job whose workers may change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use super::words::{self, Arrival, Seat};
use super::{COORDINATOR, MEMBER};
use kolo_comm::Generation;
use kolo_comm::Group;
use kolo_comm::Options;
use kolo_comm::Pace;
use kolo_rendezvous::Error;
use kolo_rendezvous::env;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Store;
use kolo_schedule::Rank;

/// Generations that may fail one after another while they form, before a member gives up.
const TRIES: usize = 100;
/// How long one question to the coordinator may wait for its answer.
const TURN: Duration = Duration::from_secs(1);

/// See the module's text.
///
/// ```no_run
/// use kolo_elastic::Member;
///
/// if let Some(mut member) = Member::from_env()? {
///     let mut group = member.join(None)?;
///     while let Err(error) = group.barrier() {
///         group = member.join(Some(&error.to_string()))?;
///     }
/// }
/// # Ok::<(), kolo_comm::Error>(())
/// ```
pub struct Member {
    name: String,
    store: Store,
    options: Options,
    arrivals: u64,
    listener: Listener,
    pace: Arc<Pace>,
    current: Option<Generation>,
    settled: bool,
}

impl Member {
    /// The member that this process is, if its launcher runs a coordinator. `None` also where MPI does the collectives: its
    /// groups cannot go on after a death.
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, or the coordinator cannot be reached.
    pub fn from_env() -> Result<Option<Member>, Error> {
        Self::of_job(&Options::from_env()?)
    }

    /// As [`Member::from_env`], but with these options instead of those that the environment gives.
    ///
    /// # Errors
    ///
    /// As [`Member::from_env`].
    pub fn of_job(options: &Options) -> Result<Option<Member>, Error> {
        let Ok(text) = std::env::var(COORDINATOR) else { return Ok(None) };
        if options.backend.is_some() {
            return Ok(None);
        }
        let address = text
            .parse()
            .map_err(|_| Error::environment(COORDINATOR, format!("is `{text}`; it must be an address")))?;
        let name = std::env::var(MEMBER).map_err(|_| Error::environment(MEMBER, "is not set"))?;
        Self::new(address, &name, options).map(Some)
    }

    /// A member of the job whose coordinator listens at `address`.
    ///
    /// # Errors
    ///
    /// The coordinator cannot be reached, or does not let this process in.
    pub fn new(address: SocketAddr, name: &str, options: &Options) -> Result<Member, Error> {
        let access = Access::new(options.token.clone(), options.encrypt)?;
        let store = Store::connect(address, &access, options.arrival())?;
        let listener = Listener::start(Store::connect(address, &access, options.arrival())?, name)?;
        let pace = Arc::new(Pace::new(options.timeout));
        let (name, options) = (name.into(), options.clone());
        Ok(Member { name, store, options, arrivals: 0, listener, pace, current: None, settled: false })
    }

    /// Comes to the meeting, waits for a seat in the next generation, and forms its group. `reason` is why the last
    /// generation is over, if there was one; the group of that must not be used any more, and may be dropped when this
    /// returns: another rank may still be reading what it has sent.
    ///
    /// # Errors
    ///
    /// The coordinator is gone, or too few others have come for too long ([`Error::TooFew`]).
    pub fn join(&mut self, reason: Option<&str>) -> Result<Group, Error> {
        let mut reason = reason.map(String::from);
        for _ in 0..TRIES {
            let place = self.seat(reason.take())?;
            self.listener.listen_for(place.generation);
            let (rank, world) = (place.rank, place.world_size);
            log::info!("generation {}: rank {rank} of {world} ({})", place.generation, place.reason);
            let at = env::WorkerEnv {
                rank: Rank(rank),
                world_size: world,
                local_rank: place.local_rank,
                endpoint: place.store.into(),
            };
            match Group::join_served(&at, &self.options) {
                Ok(group) => {
                    self.pace.begin();
                    group.follow_pace(&self.pace);
                    let formed = SystemTime::now();
                    self.current =
                        Some(Generation { number: place.generation, reason: place.reason, formed });
                    return Ok(group);
                }
                // Nothing that another try with other members would mend.
                Err(error) if error.is_misuse() => return Err(error),
                Err(error) => {
                    log::info!("generation {} does not come about: {error}", place.generation);
                    reason = Some(error.to_string());
                }
            }
        }
        Err(Error::Invalid(format!("{TRIES} generations have failed one after another while they formed")))
    }

    /// What tells this job from all others, the same for all its members.
    ///
    /// # Errors
    ///
    /// The coordinator is gone, or has found no job in the time in which workers may arrive.
    pub fn job(&mut self) -> Result<String, Error> {
        let waited = self.options.arrival();
        let until = Instant::now() + waited;
        loop {
            match self.store.get(words::JOB, TURN)? {
                Some(job) => return Ok(job),
                None if Instant::now() < until => {}
                None => {
                    return Err(Error::system(
                        "the launcher has found no others",
                        format!("within {waited:?}"),
                    ));
                }
            }
        }
    }

    /// Whether others wait to come in: all ranks of the group should come to the next meeting when they have agreed on it.
    pub fn change_wanted(&self) -> bool {
        self.listener.change_wanted()
    }

    /// From now on this member has the state of the job. Once any has said so, members that have it not do not begin anew when all
    /// that had it are gone: they get [`Error::Orphaned`].
    pub fn settle(&mut self) {
        self.settled = true;
    }

    /// A step of the generation is done. After the first few, waits for others are no longer than what was seen since allows:
    /// ten times the longest wait, or time between two collectives, at least 15 seconds; unless [`Options::timeout`] says how
    /// long.
    pub fn step_done(&self) {
        self.pace.step_done();
    }

    /// The generation that this member is in, once there is one.
    pub fn current(&self) -> Option<&Generation> {
        self.current.as_ref()
    }

    /// Its number, from 1; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.listener.shared.generation.load(Ordering::Acquire)
    }

    fn seat(&mut self, reason: Option<String>) -> Result<words::Place, Error> {
        self.arrivals += 1;
        let unreadable = |cause: serde_json::Error| Error::system("the coordinator is not understood", cause);
        let patience = self.pace.known().map(|deadline| deadline.as_millis());
        let patience_ms = patience.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX));
        let (number, settled) = (self.arrivals, self.settled);
        let arrival = Arrival { number, reason, patience_ms, settled };
        self.store.set(&words::arrival(&self.name), serde_json::to_string(&arrival).map_err(unreadable)?)?;
        let key = words::seat(&self.name, self.arrivals);
        // The coordinator decides how long: it answers in any case, or its end breaks the connection.
        let text = loop {
            if let Some(text) = self.store.get(&key, TURN)? {
                break text;
            }
        };
        match serde_json::from_str(&text).map_err(unreadable)? {
            Seat::Taken(place) => Ok(place),
            Seat::Orphaned => Err(Error::Orphaned),
            Seat::Failed { why } => Err(Error::system("the coordinator can form no generation", why)),
            Seat::Refused { present, min, waited_ms, first } => {
                Err(Error::TooFew { present, min, waited: Duration::from_millis(waited_ms), first })
            }
        }
    }
}

/// Hears while the member works whether others want to come in, and tells that it works.
struct Listener {
    shared: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    generation: AtomicU64,
    /// The generation that others wait for the end of.
    change: AtomicU64,
    closing: AtomicBool,
}

impl Listener {
    fn start(mut store: Store, member: &str) -> Result<Listener, Error> {
        let shared = Arc::new(Heard::default());
        let (heard, key) = (shared.clone(), words::work(member));
        let work = move || {
            while !heard.closing.load(Ordering::Acquire) {
                // It decides how long others wait when the member itself says nothing.
                let cpu = clock_gettime(ClockId::ProcessCPUTime);
                let ms = 1000 * cpu.tv_sec + cpu.tv_nsec / 1_000_000;
                if store.set(&key, ms.to_string()).is_err() {
                    return;
                }
                let generation = heard.generation.load(Ordering::Acquire);
                match store.get(&words::change(generation), TURN) {
                    Ok(Some(_)) => {
                        heard.change.store(generation, Ordering::Release);
                        // The answer would be the same until the next generation.
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    Ok(None) => {}
                    // The coordinator is gone; whoever needs it will say so.
                    Err(_) => return,
                }
            }
        };
        std::thread::Builder::new()
            .name("kolo-member".into())
            .spawn(work)
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok(Listener { shared })
    }

    fn listen_for(&self, generation: u64) {
        self.shared.generation.store(generation, Ordering::Release);
    }

    fn change_wanted(&self) -> bool {
        let generation = self.shared.generation.load(Ordering::Acquire);
        generation > 0 && self.shared.change.load(Ordering::Acquire) == generation
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The thread ends within a turn, for which nobody has to wait.
        self.shared.closing.store(true, Ordering::Release);
    }
}
