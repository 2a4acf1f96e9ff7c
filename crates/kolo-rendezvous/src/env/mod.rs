//! Environment variables in which a launcher passes a worker its rank and the job's address.
//!
//! Kolo uses torchrun's names, so that `torchrun` can start Kolo's workers and `kolo launch` can start
//! PyTorch's. Each other launcher is one file and one line of [`LAUNCHERS`]. A process that no launcher
//! started is a job by itself: world size 1.

mod endpoint;
mod launchers;
mod ports;
mod variables;

pub use endpoint::Endpoint;
pub use launchers::{LAUNCHERS, Launcher, Numbers};
pub use variables::Variables;

use crate::error::Error;
use kolo_schedule::Rank;
use launchers::{Origin, detect};

/// Rank of this worker in the job, `0 ≤ RANK < WORLD_SIZE`.
pub const RANK: &str = "RANK";
/// Number of workers in the job.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// Rank of this worker among those of its node.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// Number of workers on this node.
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
/// Index of this node.
pub const GROUP_RANK: &str = "GROUP_RANK";
/// Host on which rank 0 serves the store.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// Port on which rank 0 serves the store.
pub const MASTER_PORT: &str = "MASTER_PORT";
/// Name of the job, the same for all its workers.
pub const RUN_ID: &str = "TORCHELASTIC_RUN_ID";
/// File into which a failing worker writes its error, for the launcher to print.
pub const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";
/// `native` or `mpi`: the engine that runs the collectives. Default `native`.
pub const BACKEND: &str = "KOLO_BACKEND";
/// `shm` or `tcp`: overrides the choice of transport.
pub const TRANSPORT: &str = "KOLO_TRANSPORT";
/// Name of an algorithm: overrides the choice for the operations that the algorithm supports.
pub const ALGORITHM: &str = "KOLO_ALGORITHM";
/// The job's token, which lets a worker in; at least 16 characters.
pub const TOKEN: &str = "KOLO_TOKEN";
/// File that holds the job's token.
pub const TOKEN_FILE: &str = "KOLO_TOKEN_FILE";
/// `1` encrypts traffic between hosts; needs a token. Default 0.
pub const ENCRYPT: &str = "KOLO_ENCRYPT";
/// Number of TCP connections between two workers, from 1 to 64. Default 1.
pub const STREAMS: &str = "KOLO_STREAMS";
/// Congestion control of TCP connections between hosts, by its name in the kernel. `system` leaves the
/// choice to the system. Default `cubic`.
pub const TCP_CONGESTION: &str = "KOLO_TCP_CONGESTION";
/// Artificial latency of TCP messages in microseconds: simulates distance on one host. Default 0.
pub const TCP_DELAY_US: &str = "KOLO_TCP_DELAY_US";
/// Name of this worker's node; workers of one name share memory. By default, the workers of one host do.
pub const NODE: &str = "KOLO_NODE";
/// Seconds that a worker waits for others, at the rendezvous and in a collective. Default: 300 to arrive; in
/// a collective 20 times the longest one so far, at least 120; in elastic jobs 10 times, at least 15.
pub const TIMEOUT: &str = "KOLO_TIMEOUT";
/// Whole seconds for which a host may be unreachable before its connections to the store break and its ranks
/// count as dead. Default 8.
pub const HOST_TIMEOUT: &str = "KOLO_HOST_TIMEOUT";
/// `1` makes this process a summation server: it has no shards and adds for the workers. Default 0.
pub const SERVER: &str = "KOLO_SERVER";
/// Number of summation servers in the job, which [`WORLD_SIZE`] includes. Default 0.
pub const SERVERS: &str = "KOLO_SERVERS";
/// Maximum number of workers of the job, without servers, if nodes may come and go. This many shards are
/// enough to give every worker some. `kolo launch` sets it.
pub const MOST_WORKERS: &str = "KOLO_MOST_WORKERS";
/// Name of the network interface at which peers reach this worker: overrides the choice.
pub const IFACE: &str = "KOLO_IFACE";

/// A worker's view of its job before it connects to the other workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnv {
    /// Rank of this worker in the job.
    pub rank: Rank,
    /// Number of workers in the job.
    pub world_size: usize,
    /// Rank of this worker among those of its host.
    pub local_rank: usize,
    /// Endpoint at which rank 0 serves the store.
    pub endpoint: Endpoint,
}

/// Returns true if some launcher started this process as a worker. [`WorkerEnv::from_env`] then returns its
/// rank, or an error if the launcher's variables are wrong or Kolo does not know the launcher.
pub fn is_worker() -> bool {
    !matches!(detect(&Variables(&process_variable)), Origin::NoLauncher)
}

fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns this worker's rank and the number of workers from the launcher's variables. `None` if no
/// launcher, or an unknown one, started this process: MPI determines its ranks itself. The variables with
/// the address of rank 0 are not read, since MPI needs no store.
///
/// # Errors
///
/// [`Error::Environment`] names the variable that is missing, is no number or contradicts another.
pub fn rank_and_world_size() -> Result<Option<(Rank, usize)>, Error> {
    let variables = Variables(&process_variable);
    match detect(&variables) {
        Origin::Launcher(launcher) => read_ranks(launcher, &variables).map(Some),
        Origin::Unknown { .. } | Origin::NoLauncher => Ok(None),
    }
}

fn read_ranks(launcher: &dyn Launcher, variables: &Variables) -> Result<(Rank, usize), Error> {
    let names = launcher.numbers();
    let rank = variables.number(names.rank, names.world_size)?;
    let world_size = variables.number(names.world_size, names.rank)?;
    if rank >= world_size {
        let (name, whole) = (variables.first(names.rank), variables.first(names.world_size));
        return Err(Error::environment(name, format!("is {rank}; it must be below {whole}={world_size}")));
    }
    Ok((Rank(rank), world_size))
}

impl WorkerEnv {
    /// Reads the variables of the launcher that started this process; `None` if no launcher did.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable that is missing, is no number or contradicts another. It
    /// also names the rank variable of an unknown launcher that started this process as one of several.
    pub fn from_env() -> Result<Option<WorkerEnv>, Error> {
        Self::from_variables(&Variables(&process_variable))
    }

    fn from_variables(variables: &Variables) -> Result<Option<WorkerEnv>, Error> {
        let launcher = match detect(variables) {
            Origin::Launcher(launcher) => launcher,
            Origin::Unknown { variable, problem } => return Err(Error::environment(variable, problem)),
            Origin::NoLauncher => return Ok(None),
        };
        let names = launcher.numbers();
        let (rank, world_size) = read_ranks(launcher, variables)?;
        let local_rank = variables.number_if_set(names.local_rank)?.unwrap_or(rank.0);
        let local_world_size = variables.number_if_set(names.local_world_size)?;
        let one_host = local_world_size.is_none_or(|local| local == world_size);
        let endpoint = endpoint::read(variables, launcher, world_size, one_host)?;
        log::debug!("{} says: {rank} of {world_size}, the store is at {endpoint}", launcher.name());
        Ok(Some(WorkerEnv { rank, world_size, local_rank, endpoint }))
    }
}

#[cfg(test)]
mod tests;
