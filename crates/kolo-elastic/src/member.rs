//! A worker of an elastic job: it arrives at its coordinator, receives a rank, and forms groups with other
//! members.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kolo_comm::{Generation, Group, JobMembership, Options, Pace};
use kolo_rendezvous::env::WorkerEnv;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Store;
use kolo_rendezvous::{Error, WaitNotice};
use kolo_schedule::Rank;

use crate::coordinator_connection::CoordinatorConnection;
use crate::ids::unique_id;
use crate::member_name::{COORDINATOR, MEMBER};
use crate::protocol::{Membership, Outcome};
use crate::regroup_listener::RegroupListener;
use crate::worker_protocol::{self, Assignment, Reply};

/// Number of generations in a row that may fail to form before a member gives up.
const FORMING_TRIES: usize = 100;
/// Number of them that may fail because this process lacks something, such as memory.
const OWN_FAILURES: usize = 3;
/// Time for which one request to the coordinator waits for its answer.
const REPLY_WAIT: Duration = Duration::from_secs(1);

/// A worker of a job whose workers may change. Training asks it for groups through [`JobMembership`].
///
/// ```no_run
/// use kolo_comm::JobMembership;
/// use kolo_elastic::Member;
///
/// if let Some(mut member) = Member::from_env()? {
///     let mut group = member.next_group(None)?;
///     while let Err(error) = group.barrier() {
///         group = member.next_group(Some(&error.to_string()))?;
///     }
/// }
/// # Ok::<(), kolo_comm::Error>(())
/// ```
pub struct Member {
    name: String,
    coordinator: CoordinatorConnection,
    options: Options,
    membership: Membership,
    listener: RegroupListener,
    pace: Arc<Pace>,
    generation: Option<Generation>,
    /// Reason why the present group is the job's last one, if it is.
    too_few: Option<Error>,
}

kolo_comm::opaque_debug!(Member { name });

impl Member {
    /// Returns this process's member, if its launcher runs a coordinator. Returns `None` also if another
    /// engine does the collectives ([`Options::backend`]), because its groups cannot go on after a death.
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, or the coordinator cannot be reached.
    pub fn from_env() -> Result<Option<Member>, Error> {
        Self::with_options(&Options::from_env()?)
    }

    /// Returns this process's member, like [`Member::from_env`], but with the given options.
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, or the coordinator cannot be reached.
    pub fn with_options(options: &Options) -> Result<Option<Member>, Error> {
        let Ok(text) = std::env::var(COORDINATOR) else { return Ok(None) };
        if options.backend.is_some() {
            return Ok(None);
        }
        let address = text
            .parse()
            .map_err(|_| Error::environment(COORDINATOR, format!("is `{text}`; it must be an address")))?;
        let name = std::env::var(MEMBER).map_err(|_| Error::environment(MEMBER, "is not set"))?;
        Self::connect(address, &name, options).map(Some)
    }

    /// Connects the member `name` to the coordinator of its job at `address`.
    ///
    /// # Errors
    ///
    /// The coordinator cannot be reached, or refuses this process.
    pub fn connect(address: SocketAddr, name: &str, options: &Options) -> Result<Member, Error> {
        let access = Access::new(options.token.clone(), options.encrypt)?;
        let connect = || CoordinatorConnection::open(address, &access, options.arrival());
        let (coordinator, listener) = (connect()?, RegroupListener::start(connect()?, name)?);
        Ok(Member {
            name: name.into(),
            coordinator,
            options: options.clone(),
            membership: Membership::new(unique_id(), options.server),
            listener,
            pace: Arc::new(Pace::new(options.timeout)),
            generation: None,
            too_few: None,
        })
    }

    /// Returns the unique id of the job, the same for all its members.
    ///
    /// # Errors
    ///
    /// The coordinator is gone, belongs to no job, or has found none in time ([`Options::arrival`]).
    pub fn job_id(&mut self) -> Result<String, Error> {
        let limit = self.options.arrival();
        let (until, mut notice) = (Instant::now() + limit, WaitNotice::new());
        loop {
            if let Some(job_id) =
                self.coordinator.request(|store| store.get(worker_protocol::JOB_ID, REPLY_WAIT))?
            {
                return Ok(job_id);
            }
            let refused = |store: &mut Store| store.get(worker_protocol::NO_JOB, Duration::ZERO);
            if let Some(reason) = self.coordinator.request(refused)? {
                return Err(Error::system("the launcher belongs to no job", reason));
            }
            if Instant::now() >= until {
                return Err(Error::system("the launcher has found no others", format!("within {limit:?}")));
            }
            if let Some(waited) = notice.due() {
                log::warn!("{} waits since {waited:?} until its launcher has found the others", self.name);
            }
        }
    }

    fn arrive(&mut self, reason: Option<String>) -> Result<Reply, Error> {
        let unreadable = |cause: serde_json::Error| {
            Error::system("this worker does not understand its coordinator", cause)
        };
        let arrival = self.membership.arrive(reason, self.pace.known());
        let text = serde_json::to_string(&arrival).map_err(unreadable)?;
        let (arrivals, key) = (
            worker_protocol::arrival_key(&self.name),
            worker_protocol::reply_key(&self.name, arrival.number),
        );
        self.coordinator.request(|store| store.set(&arrivals, text.clone()))?;
        // No timeout here: the coordinator always replies, or its end breaks the connection.
        let text = loop {
            if let Some(text) = self.coordinator.request(|store| store.get(&key, REPLY_WAIT))? {
                break text;
            }
        };
        // The reply stays until it is read: if the connection breaks, the next request finds it.
        self.coordinator.request(|store| store.take(&key, Duration::ZERO))?;
        serde_json::from_str(&text).map_err(unreadable)
    }
}

impl JobMembership for Member {
    /// Arrives at the coordinator, waits for an assignment in the next generation, and forms its group.
    /// Fails if the coordinator is gone, if no member that held the job's state is left
    /// ([`Error::Orphaned`]), if too few members have come for too long and this one does not hold the state
    /// ([`Error::TooFew`]), or if another part of the job goes on ([`Error::Superseded`]).
    fn next_group(&mut self, reason: Option<&str>) -> Result<Group, Error> {
        let (mut reason, mut tries) = (reason.map(String::from), Tries::default());
        loop {
            let reply = self.arrive(reason.take())?;
            let (assignment, too_few) = match self.membership.replied(reply) {
                Outcome::Enter(assignment) => (assignment, None),
                Outcome::EnterLast(assignment, too_few) => (assignment, Some(too_few)),
                Outcome::ArriveAgain(why) => {
                    reason = Some(why);
                    tries.count()?;
                    continue;
                }
                Outcome::End(error) => return Err(error),
            };
            let Assignment { generation, rank, world_size, store, reason: ended } = assignment;
            let generation = generation.number;
            self.listener.set_generation(generation);
            log::info!("generation {generation}: rank {rank} of {world_size} ({ended})");
            let worker = WorkerEnv { rank: Rank(rank), world_size, endpoint: store.into() };
            // The user chose the algorithm for the workers of the first generation.
            self.options.algorithm_is_optional = generation > 1;
            match Group::join_served(&worker, &self.options, &|| self.listener.is_regroup_requested()) {
                Ok(group) => {
                    if too_few.is_none() {
                        self.membership.formed();
                    }
                    self.too_few = too_few;
                    self.pace.begin();
                    group.follow_pace(&self.pace);
                    let formed = SystemTime::now();
                    self.generation = Some(Generation { number: generation, reason: ended, formed });
                    return Ok(group);
                }
                Err(error) => {
                    log::info!("generation {generation} does not come about: {error}");
                    reason = Some(tries.failed(error)?);
                }
            }
        }
    }

    fn too_few(&self) -> Option<Error> {
        self.too_few.clone()
    }

    /// After this call, members without the job's state get [`Error::Orphaned`] when no holder is left.
    fn set_has_state(&mut self) {
        self.membership.set_has_state();
    }

    /// After the first few steps, the observed pace limits the waits for others: ten times the longest wait,
    /// or time between two collectives, at least 15 seconds. [`Options::timeout`] overrides it.
    fn step_done(&self) {
        self.pace.step_done();
    }

    fn is_change_wanted(&self) -> bool {
        self.listener.is_regroup_requested()
    }

    fn generation(&self) -> Option<Generation> {
        self.generation.clone()
    }
}

/// The generations in a row that have failed to form.
#[derive(Default)]
struct Tries {
    all: usize,
    own: usize,
    last: Option<String>,
}

impl Tries {
    /// Records the failure of a generation. Returns its reason, or the error with which the member gives up.
    fn failed(&mut self, error: Error) -> Result<String, Error> {
        self.own += usize::from(error.is_of_this_process());
        if error.is_final() || self.own >= OWN_FAILURES {
            return Err(error);
        }
        self.last = Some(error.to_string());
        self.count()?;
        Ok(error.to_string())
    }

    fn count(&mut self) -> Result<(), Error> {
        self.all += 1;
        match self.all < FORMING_TRIES {
            true => Ok(()),
            false => Err(Error::GenerationsFailed { tries: self.all, last: self.last.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_lacks_something_gives_up_soon_and_others_with_the_last_reason() {
        let lacks = || Error::system("cannot map memory", "out of memory");
        let mut tries = Tries::default();
        for _ in 1..OWN_FAILURES {
            assert_eq!(tries.failed(lacks()).unwrap(), "cannot map memory: out of memory");
        }
        assert_eq!(tries.failed(lacks()).unwrap_err().to_string(), "cannot map memory: out of memory");
        let mut tries = Tries::default();
        let died = || Error::Died { rank: Rank(1) };
        (1..FORMING_TRIES).for_each(|_| assert_eq!(tries.failed(died()).unwrap(), "rank 1 died"));
        let error = tries.failed(died()).unwrap_err().to_string();
        assert!(error.contains("100 generations") && error.ends_with("rank 1 died"), "{error}");
        assert!(Tries::default().failed(Error::CommThreadPanicked).is_err(), "it is final");
    }
}
