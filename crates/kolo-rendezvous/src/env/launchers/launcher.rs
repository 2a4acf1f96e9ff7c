//! What a launcher tells its workers.

use crate::env::names::MOST_WORKERS;
use crate::env::variables::Variables;
use crate::error::Error;
use kolo_schedule::Rank;

/// A program that starts workers and passes them their ranks in environment variables.
pub trait Launcher: Sync {
    /// Returns the name that users know: `srun`.
    fn name(&self) -> &'static str;

    /// Returns true if this launcher started the process with these variables as a worker.
    fn has_started(&self, variables: &Variables) -> bool;

    /// Returns the names of the variables that hold a worker's ranks and counts.
    fn numbers(&self) -> Numbers;

    /// Returns true if every worker has a host, or a container with an address, of its own.
    fn one_worker_per_host(&self) -> bool {
        false
    }

    /// Returns true if the launcher itself listens at `MASTER_PORT`, so that rank 0 cannot.
    fn occupies_master_port(&self, _: &Variables) -> bool {
        false
    }

    /// Returns the host of rank 0, for jobs of several hosts without `MASTER_ADDR`. `None` if the launcher
    /// does not provide it.
    ///
    /// # Errors
    ///
    /// The launcher's own variable is missing or invalid.
    fn rank_0_host(&self, _: &Variables) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Returns a text that all workers of this job know and no other job has; ports are derived from it.
    /// `None` if there is none. `one_host` is true if all workers are on one host.
    fn job_name(&self, variables: &Variables, one_host: bool) -> Option<String>;

    /// Returns the end of an error message: how a user sets the address of rank 0 for the workers.
    fn remedy(&self) -> &'static str;

    /// Returns the variables of one worker of a job on one host, as a real launcher set them.
    #[cfg(test)]
    fn example(&self) -> Example;
}

/// Reads a worker's rank and the number of workers.
pub(in crate::env) fn read_ranks(
    launcher: &dyn Launcher,
    variables: &Variables,
) -> Result<(Rank, usize), Error> {
    let names = launcher.numbers();
    let rank = variables.number(names.rank, names.world_size)?;
    let world_size = variables.number(names.world_size, names.rank)?;
    if rank >= world_size {
        let (name, whole) = (variables.first(names.rank), variables.first(names.world_size));
        // `kolo launch` sets it, and the rank of a node that comes late.
        let late = match variables.has(MOST_WORKERS) {
            true => ": this node has come after the job's start, which only members of an elastic job can",
            false => "",
        };
        let problem = format!("is {rank}; it must be below {whole}={world_size}{late}");
        return Err(Error::environment(name, problem));
    }
    Ok((Rank(rank), world_size))
}

/// Names of the variables that hold a worker's ranks and counts. The first name that is set counts.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Rank of the worker in the job.
    pub rank: &'static [&'static str],
    /// Number of workers in the job.
    pub world_size: &'static [&'static str],
    /// Rank of the worker among those of its host.
    pub local_rank: &'static [&'static str],
    /// Number of workers on its host; empty if the launcher's host list determines it.
    pub local_world_size: &'static [&'static str],
}

/// Test data of a launcher.
#[cfg(test)]
#[derive(Debug)]
pub struct Example {
    /// Variables of one worker.
    pub variables: &'static [(&'static str, &'static str)],
    /// Expected result: rank, world size, local rank.
    pub numbers: (usize, usize, usize),
    /// Host at which the workers look for rank 0.
    pub host: &'static str,
    /// Variable that differs between two jobs.
    pub job: &'static str,
}
