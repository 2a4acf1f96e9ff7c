//! The environment variables by which a launcher tells a worker who it is.
//!
//! Kolo's own names are torchrun's, so that `torchrun` can start Kolo's workers and `kolo launch` can start
//! PyTorch's. Each other launcher is one file and one line of [`LAUNCHERS`]. A process that no launcher has
//! started is a job of its own: world size 1.

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

/// This worker's rank in the job, `0 ≤ RANK < WORLD_SIZE`.
pub const RANK: &str = "RANK";
/// Number of workers in the job.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// This worker's rank among those of its node.
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
/// File into which a failing worker writes its error, for the launcher to show.
pub const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";
/// `native` or `mpi`: what does the work of the collectives. Default `native`.
pub const BACKEND: &str = "KOLO_BACKEND";
/// `shm` or `tcp`: overrides the choice of transport.
pub const TRANSPORT: &str = "KOLO_TRANSPORT";
/// Name of an algorithm: overrides the choice, for the operations that it does.
pub const ALGORITHM: &str = "KOLO_ALGORITHM";
/// The job's token, which lets a worker in; at least 16 characters.
pub const TOKEN: &str = "KOLO_TOKEN";
/// A file that holds the job's token.
pub const TOKEN_FILE: &str = "KOLO_TOKEN_FILE";
/// `1` encrypts what travels between hosts; needs a token. Default 0.
pub const ENCRYPT: &str = "KOLO_ENCRYPT";
/// TCP connections between two workers, from 1 to 64. Default 1.
pub const STREAMS: &str = "KOLO_STREAMS";
/// Congestion control of TCP connections between hosts, by its name in the kernel, or `system` for the
/// system's own choice. Default `cubic`.
pub const TCP_CONGESTION: &str = "KOLO_TCP_CONGESTION";
/// Microseconds for which messages over TCP count as under way: distance, for trials on one host. Default 0.
pub const TCP_DELAY_US: &str = "KOLO_TCP_DELAY_US";
/// Name of this worker's node; workers of one name share memory. By default those on one host do.
pub const NODE: &str = "KOLO_NODE";
/// Seconds that a worker waits for others, at the rendezvous and in a collective. Default: 300 to arrive; in
/// a collective 20 times the longest one so far, at least 120; in elastic jobs 10 times, at least 15.
pub const TIMEOUT: &str = "KOLO_TIMEOUT";
/// Whole seconds for which a host may be unreachable before its connections to the store break, and its ranks
/// count as dead. Default 8.
pub const HOST_TIMEOUT: &str = "KOLO_HOST_TIMEOUT";
/// `1` in a process that is a summation server of its job: it has no shards, and adds for those that have.
/// Default 0.
pub const SERVER: &str = "KOLO_SERVER";
/// Number of summation servers in the job, which [`WORLD_SIZE`] counts as well. Default 0.
pub const SERVERS: &str = "KOLO_SERVERS";
/// Number of workers, without servers, that the job may have at most, where nodes may come and go: as many
/// shards give work to all of them. Set by `kolo launch`.
pub const MOST_WORKERS: &str = "KOLO_MOST_WORKERS";
/// Name of the network interface at which peers reach this worker: overrides the choice.
pub const IFACE: &str = "KOLO_IFACE";

/// What a worker knows of its job before it has met the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnv {
    /// This worker's rank in the job.
    pub rank: Rank,
    /// Number of workers in the job.
    pub world_size: usize,
    /// This worker's rank among those of its host.
    pub local_rank: usize,
    /// Where rank 0 serves the store.
    pub endpoint: Endpoint,
}

/// Whether some launcher has started this process as a worker; then [`WorkerEnv::from_env`] gives its rank,
/// or says what is wrong with the launcher's variables, or that it is a launcher that Kolo does not know.
pub fn is_worker() -> bool {
    !matches!(detect(&Variables(&process_variable)), Origin::Nobody)
}

fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// This worker's rank and the number of workers, as its launcher says them; `None` when no launcher has
/// started this process, or one that Kolo does not know: MPI finds its ranks by itself. The variables that
/// say where rank 0 is are not read: MPI needs no store.
///
/// # Errors
///
/// [`Error::Environment`] names the variable that is missing, is no number or contradicts another.
pub fn rank_and_world_size() -> Result<Option<(Rank, usize)>, Error> {
    let variables = Variables(&process_variable);
    match detect(&variables) {
        Origin::Launcher(launcher) => read_ranks(launcher, &variables).map(Some),
        Origin::Unknown { .. } | Origin::Nobody => Ok(None),
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
    /// Reads the variables of the launcher that has started this process; `None` when there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable that is missing, is no number or contradicts another, or by
    /// which a launcher that Kolo does not know has started this process beside others.
    pub fn from_env() -> Result<Option<WorkerEnv>, Error> {
        Self::from_variables(&Variables(&process_variable))
    }

    fn from_variables(variables: &Variables) -> Result<Option<WorkerEnv>, Error> {
        let launcher = match detect(variables) {
            Origin::Launcher(launcher) => launcher,
            Origin::Unknown { variable, problem } => return Err(Error::environment(variable, problem)),
            Origin::Nobody => return Ok(None),
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
