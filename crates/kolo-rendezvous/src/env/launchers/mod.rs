//! The table of launchers.
//!
//! A launcher is one file of this folder and one line of [`LAUNCHERS`]; errors, help and tests read the
//! table.

mod hostlist;
mod hydra;
mod openmpi;
mod slurm;
mod torchrun;
mod unknown;

use super::variables::Variables;
use crate::error::Error;

/// A program that starts workers, and the environment variables by which it tells them who they are.
pub trait Launcher: Sync {
    /// What users call it: `srun`.
    fn name(&self) -> &'static str;

    /// Whether it has started the process with these variables as a worker.
    fn has_started(&self, variables: &Variables) -> bool;

    /// The names of the variables that hold a worker's numbers.
    fn numbers(&self) -> Numbers;

    /// Whether the launcher itself listens at `MASTER_PORT`, so that rank 0 cannot.
    fn occupies_master_port(&self, _: &Variables) -> bool {
        false
    }

    /// The host of rank 0, for jobs of several hosts without `MASTER_ADDR`; `None` if the launcher does not
    /// say.
    ///
    /// # Errors
    ///
    /// The launcher's own variable is missing or cannot be understood.
    fn rank_0_host(&self, _: &Variables) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// A text that all workers of this job know and no other job has: ports are derived from it. `None` if
    /// there is none; `one_host` says whether all workers are on one host.
    fn job_name(&self, variables: &Variables, one_host: bool) -> Option<String>;

    /// The end of an error: how a user tells the workers where rank 0 is.
    fn remedy(&self) -> &'static str;

    /// The variables of one worker of a job on one host, as a real launcher has set them.
    #[cfg(test)]
    fn example(&self) -> Example;
}

/// The names of the variables that hold a worker's numbers. Of several names the first that is set counts.
#[derive(Clone, Copy)]
pub struct Numbers {
    /// The worker's rank in the job.
    pub rank: &'static [&'static str],
    /// The number of workers in the job.
    pub world_size: &'static [&'static str],
    /// The worker's rank among those of its host.
    pub local_rank: &'static [&'static str],
    /// The number of workers on its host; empty where the launcher's host list tells.
    pub local_world_size: &'static [&'static str],
}

/// What a launcher is tested with.
#[cfg(test)]
pub struct Example {
    /// The variables of one worker.
    pub variables: &'static [(&'static str, &'static str)],
    /// What Kolo makes of them: rank, world size, local rank.
    pub numbers: (usize, usize, usize),
    /// The host at which rank 0 is looked for.
    pub host: &'static str,
    /// The variable that differs between two jobs.
    pub job: &'static str,
}

/// All launchers. The order matters where one runs inside another: `srun` starts `mpirun`'s helpers, `kolo
/// launch` runs under both. What a user has set by hand is torchrun's and wins over all.
pub static LAUNCHERS: &[&dyn Launcher] =
    &[&torchrun::Torchrun, &openmpi::OpenMpi, &hydra::Hydra, &slurm::Slurm];

/// What the variables of a process say about who has started it.
pub(super) enum Origin {
    /// This launcher has started it as a worker.
    Launcher(&'static dyn Launcher),
    /// A process manager that is not in the table has started it beside others; the variable holds its rank.
    Unknown {
        /// The variable of the process's rank, and what to do.
        variable: &'static str,
        problem: String,
    },
    /// No launcher has started it: it is a job of its own.
    Nobody,
}

/// Who has started the process with these variables.
pub(super) fn detect(variables: &Variables) -> Origin {
    if let Some(launcher) = LAUNCHERS.iter().copied().find(|launcher| launcher.has_started(variables)) {
        return Origin::Launcher(launcher);
    }
    // Job scripts set WORLD_SIZE for programs that read the rest from Slurm or MPI. Alone it is an error,
    // which torchrun's variables name.
    if variables.has(super::WORLD_SIZE) {
        return Origin::Launcher(&torchrun::Torchrun);
    }
    match unknown::detect(variables) {
        Some((variable, problem)) => Origin::Unknown { variable, problem },
        None => Origin::Nobody,
    }
}
