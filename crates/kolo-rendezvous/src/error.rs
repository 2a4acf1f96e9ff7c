//! Errors between workers, by kind. If a worker is at fault, the error names it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::backend_error::BackendError;
use crate::invalid_call::InvalidCall;
use crate::secure::RejectReason;
use kolo_schedule::Rank;
use kolo_schedule::words::counted;

/// An error of rendezvous or of a collective.
///
/// It is cloneable and serializable: the first rank that detects a failure sends it to all others, and all
/// ranks report the same culprit.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// An environment variable is missing or wrong.
    #[error("the environment variable {name} {problem}")]
    Environment { name: String, problem: String },
    /// The job's token is invalid or cannot be read.
    #[error("{origin} {problem}")]
    Token { origin: String, problem: String },
    /// The store cannot listen.
    #[error(
        "cannot listen at {address}: {cause}; choose another port (MASTER_PORT, --master-port) or leave it out"
    )]
    Listen { address: SocketAddr, cause: String },
    /// The store's address is that of another host.
    #[error(
        "cannot listen at {address}, which is no address of this machine: --master (MASTER_ADDR) is that of node 0; give this \
         machine --node-rank 1 or another number of its own, or correct the address"
    )]
    OtherHost { address: SocketAddr },
    /// A worker has a rank outside of its job.
    #[error("there is no {rank} among {world_size}; give all workers the same WORLD_SIZE")]
    UnknownRank {
        rank: Rank,
        /// Number of workers, as rank 0 knows it.
        world_size: usize,
    },
    /// Processes of this host cannot connect to each other.
    #[error(
        "nothing on this host can connect to {address}: the loopback interface is down or lacks that address; bring \
         it up (`ip link set lo up`)"
    )]
    LoopbackDown { address: IpAddr },
    /// Two workers have the same rank.
    #[error("two workers say they are {rank}; give each its own RANK")]
    DuplicateRank { rank: Rank },
    /// The listener at the store's address does not let this worker join.
    #[error("cannot join the job at {address}: {cause}")]
    JoinRejected { address: SocketAddr, cause: String },
    /// This process and the process that it connects to do not have the same token.
    #[error(
        "{}; give all nodes the same token (--token-file, KOLO_TOKEN or KOLO_TOKEN_FILE)", token_difference(*reason, address)
    )]
    TokenDiffers { address: SocketAddr, reason: RejectReason },
    /// The connection to the store broke.
    #[error("lost the store of rank 0 at {address}: {cause}")]
    StoreLost { address: SocketAddr, cause: String },
    /// The store does not keep a required value.
    #[error("the store at {address} does not keep a value: {cause}")]
    StoreRefuses { address: SocketAddr, cause: String },
    /// Some ranks did not arrive at the rendezvous in time.
    #[error(
        "{} did not arrive at {address} within {waited:?}; {}",
        ranks(missing),
        started_or_refused(refused)
    )]
    Missing { missing: Vec<Rank>, address: SocketAddr, waited: Duration, refused: Vec<IpAddr> },
    /// A worker ended, or its connection broke, while others still needed it.
    #[error("{rank} died")]
    Died { rank: Rank },
    /// A worker left the group in good order while others still waited for it.
    #[error("{rank} left the group while others still waited for it in {during}")]
    Left { rank: Rank, during: String },
    /// A worker gave up for a reason of its own.
    #[error("{rank} gave up: {reason}")]
    Abandoned { rank: Rank, reason: String },
    /// A peer did not do its part before the deadline.
    #[error(
        "{rank} did not take part in {during} within {waited:?}; raise --timeout (KOLO_TIMEOUT) if it is merely slow"
    )]
    Timeout { rank: Rank, during: String, waited: Duration },
    /// Too few workers are left, and no new ones have arrived.
    #[error("{present} of at least {} {} there, and {}", counted(min, "worker"), if *present == 1 { "is" } else { "are" }, others(*waited))]
    TooFew {
        present: usize,
        min: usize,
        /// Time that they waited for more workers; zero if none will come.
        waited: Duration,
        /// True if this worker is in a last group of those that held the state, in which they can save it.
        is_last_group: bool,
    },
    /// A new worker finds no worker that has the state of the job.
    #[error("all workers that had the job's state have died; continue from a checkpoint, if there is one")]
    Orphaned,
    /// The job's launchers have lost each other, and this worker is not on the side that may continue.
    #[error("this worker must stop, because other workers of its job continue, or may continue: {reason}")]
    Superseded {
        /// Sentence that names the side that continues, or says why another side may.
        reason: String,
    },
    /// No permitted transport connects one rank to another.
    #[error("{from} cannot reach {to}: {}; unset KOLO_TRANSPORT if you set it", reasons_of(reasons))]
    NoTransport { from: Rank, to: Rank, reasons: Vec<(String, String)> },
    /// Two ranks called different collectives.
    #[error(
        "{here} called {ours}, but {there} called {theirs}; all ranks must make the same calls in one order"
    )]
    Mismatch { here: Rank, ours: String, there: Rank, theirs: String },
    /// The arguments of a collective are wrong by themselves.
    #[error(transparent)]
    InvalidCall(#[from] InvalidCall),
    /// The requested algorithm cannot be used on this group.
    #[error("algorithm {algorithm} cannot be used here: {reason}")]
    AlgorithmUnusable { algorithm: String, reason: String },
    /// A library that runs the collectives cannot do what the program requests.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The communication thread has panicked; the panic message has been printed.
    #[error("the communication thread has panicked")]
    CommThreadPanicked,
    /// A launcher did not find another launcher of its job.
    #[error("this node finds no launcher of the job at {masters} (--master){}", because(cause.as_deref()))]
    JobNotFound { masters: String, cause: Option<Box<Error>> },
    /// The launcher that leads an elastic job does not admit another launcher.
    #[error("the job {reason}")]
    LauncherRefused { reason: String },
    /// Several generations of an elastic job in a row failed to form.
    #[error(
        "{tries} generations have failed one after another while they formed{}",
        last.as_ref().map(|last| format!("; the last one: {last}")).unwrap_or_default()
    )]
    GenerationsFailed { tries: usize, last: Option<String> },
    /// One rank cannot connect to another.
    #[error("{from}, reached {reached}, cannot connect to {to} at {address}: {cause}")]
    Unreachable { from: Rank, reached: String, to: Rank, address: SocketAddr, cause: String },
    /// The data from a rank is damaged or forged.
    #[error("this worker cannot trust the data from {rank}: {cause}")]
    Untrusted { rank: Rank, cause: String },
    /// This process has reached its limit of open files and connections.
    #[error("{what}: too many open files; this process may have {limit}: raise `ulimit -n`")]
    TooManyFiles { what: String, limit: u64 },
    /// A file or shared memory of this process would exceed its size limit.
    #[error("{what}: this process may have no file larger than {limit} bytes: raise `ulimit -f`")]
    FileTooLarge { what: String, limit: u64 },
    /// The operating system or a library refused an operation.
    #[error("{what}: {cause}")]
    System { what: String, cause: String },
}

impl Error {
    /// Creates an [`Error::Environment`] for this variable; `problem` describes the problem and the remedy.
    pub fn environment(name: &str, problem: impl Into<String>) -> Self {
        Error::Environment { name: name.into(), problem: problem.into() }
    }

    /// Creates an [`Error::System`] from the attempted operation `what` and the failure's message `cause`.
    pub fn system(what: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Error::System { what: what.into(), cause: cause.to_string() }
    }

    /// Creates the error for an operation `what` that the operating system refused: [`Error::TooManyFiles`]
    /// or [`Error::FileTooLarge`] if that is the cause, else [`Error::System`].
    pub fn io(what: impl Into<String>, cause: io::Error) -> Self {
        let (what, limit) = (what.into(), |resource| getrlimit(resource).current.unwrap_or(u64::MAX));
        if is_out_of_files(&cause) {
            return Error::TooManyFiles { what, limit: limit(Resource::Nofile) };
        }
        match cause.kind() {
            io::ErrorKind::FileTooLarge => Error::FileTooLarge { what, limit: limit(Resource::Fsize) },
            _ => Error::system(what, cause),
        }
    }

    /// Returns the rank at fault, if it is another rank than the reporting one.
    pub fn culprit(&self) -> Option<Rank> {
        match self {
            Error::Died { rank }
            | Error::Left { rank, .. }
            | Error::Abandoned { rank, .. }
            | Error::Untrusted { rank, .. }
            | Error::Timeout { rank, .. } => Some(*rank),
            Error::Unreachable { to, .. } => Some(*to),
            Error::Missing { missing, .. } => missing.first().copied(),
            _ => None,
        }
    }

    /// Returns true if neither another try of this process nor other workers would help: a setting or a call
    /// is wrong, this process has reached a limit, or it has tried often enough.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Error::Environment { .. }
                | Error::Token { .. }
                | Error::TokenDiffers { .. }
                | Error::LoopbackDown { .. }
                | Error::UnknownRank { .. }
                | Error::DuplicateRank { .. }
                | Error::Mismatch { .. }
                | Error::NoTransport { .. }
                | Error::InvalidCall(_)
                | Error::AlgorithmUnusable { .. }
                | Error::Backend(_)
                | Error::CommThreadPanicked
                | Error::TooManyFiles { .. }
                | Error::FileTooLarge { .. }
                | Error::JobNotFound { .. }
                | Error::LauncherRefused { .. }
                | Error::GenerationsFailed { .. }
        )
    }

    /// Returns true if a setting is wrong: a variable, the token, or an algorithm or a library that cannot do
    /// what it was chosen for.
    pub fn is_setting(&self) -> bool {
        use BackendError::{NotBuilt, Option};
        matches!(
            self,
            Error::Environment { .. }
                | Error::Token { .. }
                | Error::AlgorithmUnusable { .. }
                | Error::Backend(NotBuilt { .. } | Option { .. })
        )
    }

    /// Returns true if a collective was refused before anything was sent, so that the group stays usable.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Error::InvalidCall(_)
                | Error::AlgorithmUnusable { .. }
                | Error::Backend(BackendError::TreeOrder { .. })
        )
    }

    /// Returns true if the death of another worker may have caused the error. The other workers can then
    /// continue without that worker.
    pub fn is_lost_peer(&self) -> bool {
        matches!(
            self,
            Error::Died { .. }
                | Error::Left { .. }
                | Error::Abandoned { .. }
                | Error::Timeout { .. }
                | Error::Missing { .. }
                | Error::JoinRejected { .. }
                | Error::StoreLost { .. }
                | Error::Unreachable { .. }
                | Error::Untrusted { .. }
        )
    }

    /// Returns true if the reporting process lacks a resource, such as memory, descriptors or threads. It
    /// cannot continue, but the other workers can without it.
    pub fn is_of_this_process(&self) -> bool {
        matches!(self, Error::System { .. } | Error::TooManyFiles { .. } | Error::FileTooLarge { .. })
    }
}

/// Returns true if the cause is this process's limit of open files and connections.
pub fn is_out_of_files(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

fn started_or_refused(refused: &[IpAddr]) -> String {
    if refused.is_empty() {
        return "are all workers started, by the same command?".into();
    }
    let hosts: Vec<String> = refused.iter().map(IpAddr::to_string).collect();
    let hosts = hosts.join(", ");
    format!(
        "workers on {hosts} were refused because their token differs: give all the same (KOLO_TOKEN, KOLO_TOKEN_FILE)"
    )
}

fn token_difference(reason: RejectReason, address: &SocketAddr) -> String {
    match reason {
        RejectReason::TokenMissing => format!("the job at {address} has a token, and this node has none"),
        RejectReason::TokenUnknown => format!("this node has a token, and the job at {address} has none"),
        _ => format!("this node's token differs from that of the job at {address}"),
    }
}

fn because(cause: Option<&Error>) -> String {
    cause.map_or_else(String::new, |cause| format!(": {cause}"))
}

fn others(waited: Duration) -> String {
    match waited.is_zero() {
        true => "no others will come".into(),
        false => format!("no others have come within {waited:?}"),
    }
}

fn reasons_of(reasons: &[(String, String)]) -> String {
    reasons.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; ")
}

fn ranks(ranks: &[Rank]) -> String {
    let numbers: Vec<String> = ranks.iter().map(|rank| rank.0.to_string()).collect();
    format!("rank{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
}
