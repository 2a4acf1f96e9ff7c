//! What can go wrong between workers, by kind; where a worker is at fault, the error names it.

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

/// An error of rendezvous or of a collective.
///
/// Cloneable and serialisable: the first rank to see a failure tells all others, and every one of them
/// reports the same culprit.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Error {
    /// A variable of the environment is missing or wrong.
    #[error("the environment variable {name} {problem}")]
    Environment {
        /// The variable.
        name: String,
        /// What is wrong with it, and the remedy.
        problem: String,
    },
    /// The job's token is none, or cannot be read.
    #[error("{origin} {problem}")]
    Token {
        /// Where the token is from: its file.
        origin: String,
        /// What is wrong with it, and the remedy.
        problem: String,
    },
    /// The store cannot listen.
    #[error(
        "cannot listen at {address}: {cause}; choose another port (MASTER_PORT, --master-port) or leave it out"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The operating system's words.
        cause: String,
    },
    /// A worker has a rank that its job does not have.
    #[error("there is no {rank} among {world_size}; give all workers the same WORLD_SIZE")]
    UnknownRank {
        /// The worker's rank.
        rank: Rank,
        /// The number of workers, as rank 0 knows it.
        world_size: usize,
    },
    /// Processes of this host cannot connect to each other.
    #[error(
        "nothing on this host can connect to {address}: the loopback interface is down or lacks that address; bring \
         it up (`ip link set lo up`)"
    )]
    LoopbackDown {
        /// An address of the loopback interface.
        address: IpAddr,
    },
    /// Two workers have one rank.
    #[error("two workers say they are {rank}; give each its own RANK")]
    DuplicateRank {
        /// The rank.
        rank: Rank,
    },
    /// What listens at the store's address does not let this worker join.
    #[error("cannot join the job at {address}: {cause}")]
    JoinRejected {
        /// The store's address.
        address: SocketAddr,
        /// Why the handshake failed.
        cause: String,
    },
    /// This process and the one that it needs do not have the same token.
    #[error(
        "{}; give all nodes the same token (--token-file, KOLO_TOKEN or KOLO_TOKEN_FILE)", token_difference(*reason, address)
    )]
    TokenDiffers {
        /// Where the other process listens.
        address: SocketAddr,
        /// Why it refuses this one.
        reason: RejectReason,
    },
    /// The connection to the store broke.
    #[error("lost the store of rank 0 at {address}: {cause}")]
    StoreLost {
        /// The store's address.
        address: SocketAddr,
        /// The operating system's words.
        cause: String,
    },
    /// The store does not keep a value that is needed.
    #[error("the store at {address} does not keep a value: {cause}")]
    StoreRefuses {
        /// The store's address.
        address: SocketAddr,
        /// Its words.
        cause: String,
    },
    /// Some ranks did not come to the rendezvous in time.
    #[error(
        "{} did not arrive at {address} within {waited:?}; {}",
        ranks(missing),
        started_or_refused(refused)
    )]
    Missing {
        /// Those who did not come.
        missing: Vec<Rank>,
        /// Where they were expected.
        address: SocketAddr,
        /// How long.
        waited: Duration,
        /// Hosts that came there and were refused because of their token.
        refused: Vec<IpAddr>,
    },
    /// A worker ended, or its connection broke, while others still needed it.
    #[error("{rank} died")]
    Died {
        /// The one who died.
        rank: Rank,
    },
    /// A worker left the group in good order while others still waited for it.
    #[error("{rank} left the group while others still waited for it in {during}")]
    Left {
        /// The one who left.
        rank: Rank,
        /// The collective that waited.
        during: String,
    },
    /// A worker gave up, with its own reason.
    #[error("{rank} gave up: {reason}")]
    Abandoned {
        /// The one who gave up.
        rank: Rank,
        /// Its words.
        reason: String,
    },
    /// A peer did not do its part before the deadline.
    #[error(
        "{rank} did not take part in {during} within {waited:?}; raise --timeout (KOLO_TIMEOUT) if it is merely slow"
    )]
    Timeout {
        /// The one waited for.
        rank: Rank,
        /// The collective that waited.
        during: String,
        /// How long.
        waited: Duration,
    },
    /// Too few workers are left, and no others have come.
    #[error("{present} of at least {min} workers are there, and {}", others(*waited))]
    TooFew {
        /// Workers that are there.
        present: usize,
        /// Fewest with which the job may go on.
        min: usize,
        /// How long they have waited for others; zero if none will come.
        waited: Duration,
        /// Whether this worker is the first of those that are there: the one to save what they have come to.
        first: bool,
    },
    /// A new worker finds none left who has the state of the job.
    #[error("all workers that had the job's state have died; start again from the last checkpoint")]
    Orphaned,
    /// The job's launchers have lost each other, and this worker is not on the side that may go on.
    #[error("this worker must not go on, because others of its job do or may: {reason}")]
    Superseded {
        /// Who goes on, or why others may, as a sentence.
        reason: String,
    },
    /// No transport that may be used leads from one rank to another.
    #[error("{from} cannot reach {to}: {}; is KOLO_TRANSPORT set?", reasons_of(reasons))]
    NoTransport {
        /// The rank that noticed.
        from: Rank,
        /// The rank that it needs to reach.
        to: Rank,
        /// The transports by name, and why each does not lead there.
        reasons: Vec<(String, String)>,
    },
    /// Two ranks called different collectives.
    #[error(
        "{here} called {ours}, but {there} called {theirs}; all ranks must make the same calls in one order"
    )]
    Mismatch {
        /// The rank that noticed.
        here: Rank,
        /// Its call.
        ours: String,
        /// The other rank.
        there: Rank,
        /// The other's call.
        theirs: String,
    },
    /// A call of a collective is wrong by itself.
    #[error(transparent)]
    InvalidCall(#[from] InvalidCall),
    /// An algorithm that was asked for cannot be used on this group.
    #[error("algorithm {algorithm} cannot be used here: {reason}")]
    AlgorithmUnusable {
        /// The algorithm's name.
        algorithm: String,
        /// What the group lacks, in the algorithm's words.
        reason: String,
    },
    /// A library that does the collectives cannot do what it is asked for.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The communication thread has panicked, and printed why.
    #[error("the communication thread has panicked")]
    CommThreadPanicked,
    /// A launcher has found no launcher of its job.
    #[error("no launcher of the job is found at {masters} (--master){}", because(cause.as_deref()))]
    JobNotFound {
        /// Where it has looked.
        masters: String,
        /// The last error that it met there, if there was one.
        cause: Option<Box<Error>>,
    },
    /// The launcher that leads an elastic job does not take another one in.
    #[error("the job {reason}")]
    LauncherRefused {
        /// What the job is or needs.
        reason: String,
    },
    /// Generations of an elastic job have failed one after another.
    #[error("{tries} generations have failed one after another while they formed")]
    GenerationsFailed {
        /// How many.
        tries: usize,
    },
    /// One rank cannot connect to another.
    #[error("{from}, reached {reached}, cannot connect to {to} at {address}: {cause}")]
    Unreachable {
        /// The rank that tries.
        from: Rank,
        /// Where others reach it, in words.
        reached: String,
        /// The rank that it needs to reach.
        to: Rank,
        /// Where that one listens, as it has said.
        address: SocketAddr,
        /// Why the last attempt failed.
        cause: String,
    },
    /// What a rank sends is damaged, or not its own.
    #[error("what comes from {rank} cannot be trusted: {cause}")]
    Untrusted {
        /// The rank from which it seems to come.
        rank: Rank,
        /// What is wrong with it.
        cause: String,
    },
    /// This process has as many files and connections open as it may.
    #[error("{what}: too many open files; this process may have {limit}: raise `ulimit -n`")]
    TooManyFiles {
        /// What was tried.
        what: String,
        /// How many it may have.
        limit: u64,
    },
    /// This process may not make a file, or memory that it shares, so large.
    #[error("{what}: this process may have no file larger than {limit} bytes: raise `ulimit -f`")]
    FileTooLarge {
        /// What was tried.
        what: String,
        /// How large one may be, in bytes.
        limit: u64,
    },
    /// The operating system or a library refused this process something.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: String,
        /// The operating system's or the library's words.
        cause: String,
    },
}

impl Error {
    /// An [`Error::Environment`] of this variable; `problem` is what is wrong with it, and the remedy.
    pub fn environment(name: &str, problem: impl Into<String>) -> Self {
        Error::Environment { name: name.into(), problem: problem.into() }
    }

    /// An [`Error::System`]: `what` was tried, and `cause` are the words of who refused it.
    pub fn system(what: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Error::System { what: what.into(), cause: cause.to_string() }
    }

    /// The operating system refused this process something: an [`Error::TooManyFiles`] or
    /// [`Error::FileTooLarge`] where that is the cause, else an [`Error::System`]. `what` was tried.
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

    /// The rank at fault, when it is another one than the reporting rank.
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

    /// Whether a setting or a call is wrong, so that neither another try nor other workers would help.
    pub fn is_misuse(&self) -> bool {
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
                | Error::JobNotFound { .. }
                | Error::LauncherRefused { .. }
                | Error::GenerationsFailed { .. }
        )
    }

    /// Whether a collective was refused before anything was sent, so that the group is not harmed and can be
    /// used on.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Error::InvalidCall(_)
                | Error::AlgorithmUnusable { .. }
                | Error::Backend(BackendError::TreeOrder { .. })
        )
    }

    /// Whether the error may come of another worker's death, as this worker sees it: then the others can go
    /// on without it.
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

    /// Whether the process that reports the error lacks something, as memory, descriptors or threads: it
    /// cannot go on, and the others can without it.
    pub fn is_of_this_process(&self) -> bool {
        matches!(self, Error::System { .. } | Error::TooManyFiles { .. })
    }
}

/// Whether the cause is that this process has as many files and connections open as it may.
pub fn is_out_of_files(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

fn started_or_refused(refused: &[IpAddr]) -> String {
    if refused.is_empty() {
        return "are all workers started?".into();
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
