//! The table of launchers. Each launcher is one file of this folder and one line of [`LAUNCHERS`]. Errors,
//! help and tests read the table.

mod hostlist;
mod hydra;
mod indexed_job;
mod launcher;
mod openmpi;
pub(super) mod slurm;
mod torchrun;
mod unknown;

#[cfg(test)]
pub use self::launcher::Example;
pub(super) use self::launcher::read_ranks;
pub use self::launcher::{Launcher, Numbers};
use super::variables::Variables;

/// All launchers. The order matters if one runs inside another: `srun` starts `mpirun`'s helpers, and `kolo
/// launch` runs under both. Variables that a user sets by hand are torchrun's and take precedence.
pub static LAUNCHERS: &[&dyn Launcher] =
    &[&torchrun::Torchrun, &openmpi::OpenMpi, &hydra::Hydra, &slurm::Slurm, &indexed_job::IndexedJob];

/// The starter of a process, by the process's variables.
pub(super) enum Origin {
    /// This launcher started the process as a worker.
    Launcher(&'static dyn Launcher),
    /// A process manager outside the table started the process as one of several.
    Unknown {
        /// Variable of the process's rank; `problem` includes the remedy.
        variable: &'static str,
        problem: String,
    },
    /// No launcher started the process: it is a job by itself.
    NoLauncher,
}

pub(super) fn detect(variables: &Variables) -> Origin {
    if let Some(launcher) = LAUNCHERS.iter().copied().find(|launcher| launcher.has_started(variables)) {
        return Origin::Launcher(launcher);
    }
    // Job scripts set WORLD_SIZE for programs that read the rest from Slurm or MPI. WORLD_SIZE alone is an
    // error, which torchrun's variables name.
    if variables.has(super::names::WORLD_SIZE) {
        return Origin::Launcher(&torchrun::Torchrun);
    }
    match unknown::detect(variables) {
        Some((variable, problem)) => Origin::Unknown { variable, problem },
        None => Origin::NoLauncher,
    }
}
