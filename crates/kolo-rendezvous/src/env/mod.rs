//! Environment variables in which a launcher passes a worker its rank and the job's address.
//!
//! Kolo uses torchrun's names, so that `torchrun` can start Kolo's workers and `kolo launch` can start
//! PyTorch's. Each other launcher is one file and one line of [`LAUNCHERS`]. A process that no launcher
//! started is a job by itself: world size 1.

mod endpoint;
mod launchers;
mod names;
mod node_env;
mod ports;
mod variables;

pub use endpoint::Endpoint;
pub use launchers::{LAUNCHERS, Launcher, Numbers};
pub use names::*;
pub use node_env::{NodeEnv, Nodes};
pub use variables::Variables;

use crate::error::Error;
use kolo_schedule::Rank;
use launchers::{Origin, detect, read_ranks};

/// A worker's place in a group, by which it joins the other workers. A member of an elastic job gets a place
/// in each generation from its coordinator. The variables of its launcher hold none for it: a node that comes
/// late has ranks beyond the number of workers with which the job began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnv {
    /// Rank of this worker in the group.
    pub rank: Rank,
    /// Number of workers in the group.
    pub world_size: usize,
    /// Endpoint at which rank 0 serves the store.
    pub endpoint: Endpoint,
}

/// Returns true if some launcher started this process as a worker. [`WorkerEnv::from_env`] then returns its
/// rank, or an error if the launcher's variables are wrong or Kolo does not know the launcher.
pub fn is_worker() -> bool {
    !matches!(detect(&Variables::of_process()), Origin::NoLauncher)
}

/// Returns this worker's rank and the number of workers from the launcher's variables. `None` if no
/// launcher, or an unknown one, started this process: MPI determines its ranks itself. The variables with
/// the address of rank 0 are not read, since MPI needs no store.
///
/// # Errors
///
/// [`Error::Environment`] names the variable that is missing, is not a number or contradicts another.
pub fn rank_and_world_size() -> Result<Option<(Rank, usize)>, Error> {
    let variables = Variables::of_process();
    match detect(&variables) {
        Origin::Launcher(launcher) => read_ranks(launcher, &variables).map(Some),
        Origin::Unknown { .. } | Origin::NoLauncher => Ok(None),
    }
}

/// Returns this worker's rank among those of its host; 0 if no launcher, or an unknown one, started this
/// process.
///
/// # Errors
///
/// [`Error::Environment`]: the variable is not a number.
pub fn local_rank() -> Result<usize, Error> {
    local_rank_in(&Variables::of_process())
}

fn local_rank_in(variables: &Variables) -> Result<usize, Error> {
    let Origin::Launcher(launcher) = detect(variables) else { return Ok(0) };
    let Numbers { local_rank, rank, .. } = launcher.numbers();
    let given = variables.number_if_set(local_rank)?;
    let on_one_host = || variables.number_if_set(rank).map(Option::unwrap_or_default);
    given.map_or_else(|| if launcher.one_worker_per_host() { Ok(0) } else { on_one_host() }, Ok)
}

/// Returns the number of workers that the launcher knew when it started this one, servers included. 1 if no
/// launcher, or an unknown one, started this process.
///
/// # Errors
///
/// [`Error::Environment`]: a variable is missing or not a number.
pub fn known_workers() -> Result<usize, Error> {
    known_workers_in(&Variables::of_process())
}

fn known_workers_in(variables: &Variables) -> Result<usize, Error> {
    let Origin::Launcher(launcher) = detect(variables) else { return Ok(1) };
    let Numbers { rank, world_size, .. } = launcher.numbers();
    let at_the_start = variables.number(world_size, rank)?;
    // A node that comes late has higher ranks.
    Ok(at_the_start.max(1 + variables.number(rank, world_size)?))
}

/// Returns the number of summation servers that the environment gives; 0 if it gives none.
///
/// # Errors
///
/// [`Error::Environment`]: the variable is not a number, or above [`MOST_PROCESSES`].
pub fn servers() -> Result<usize, Error> {
    Ok(Variables::of_process().count_if_set(&[SERVERS])?.unwrap_or(0))
}

/// Returns the maximum number of workers that the environment gives. Fails as [`servers`] does.
pub fn most_workers() -> Result<Option<usize>, Error> {
    Variables::of_process().count_if_set(&[MOST_WORKERS])
}

impl WorkerEnv {
    /// Reads the place in the fixed group of all workers from the variables of the launcher that started this
    /// process; `None` if no launcher did.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable that is missing, is not a number or contradicts another. It
    /// also names the rank variable of an unknown launcher that started this process as one of several.
    pub fn from_env() -> Result<Option<WorkerEnv>, Error> {
        Self::from_variables(&Variables::of_process())
    }

    fn from_variables(variables: &Variables) -> Result<Option<WorkerEnv>, Error> {
        let launcher = match detect(variables) {
            Origin::Launcher(launcher) => launcher,
            Origin::Unknown { variable, problem } => return Err(Error::environment(variable, problem)),
            Origin::NoLauncher => return Ok(None),
        };
        let names = launcher.numbers();
        let (rank, world_size) = read_ranks(launcher, variables)?;
        let apart = launcher.one_worker_per_host();
        let local_world_size = variables.number_if_set(names.local_world_size)?;
        let one_host = !apart && local_world_size.is_none_or(|local| local == world_size);
        let endpoint = endpoint::read(variables, launcher, world_size, one_host)?;
        log::debug!("{} says: {rank} of {world_size}, the store is at {endpoint}", launcher.name());
        Ok(Some(WorkerEnv { rank, world_size, endpoint }))
    }
}

#[cfg(test)]
mod tests;
