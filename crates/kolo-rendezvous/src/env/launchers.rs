//! The table of launchers.

use super::variables::Variables;
use super::{hydra, openmpi, slurm, torchrun};
use crate::error::Error;

/// A program that starts workers, and how it tells them their place.
pub struct Launcher {
    /// What it is called.
    pub name: &'static str,
    /// Whether it has started this process as a worker.
    pub(super) recognise: fn(&Variables) -> bool,
    /// Where the rank stands: the first variable of these that is set. So with the next three.
    pub(super) rank: &'static [&'static str],
    pub(super) world_size: &'static [&'static str],
    pub(super) local_rank: &'static [&'static str],
    pub(super) local_world_size: &'static [&'static str],
    /// Whether it listens at `MASTER_PORT` itself, so that rank 0 cannot.
    pub(super) takes_port: fn(&Variables) -> bool,
    /// The host of rank 0, where there are several hosts and `MASTER_ADDR` is not set; `None` if it does not say.
    pub(super) host: fn(&Variables) -> Result<Option<String>, Error>,
    /// What all workers of this job know and no other job has: ports are derived from it. `None` if there is no such
    /// thing; the flag says whether all workers are on one host.
    pub(super) job: fn(&Variables, bool) -> Option<String>,
    /// How a user tells the workers where to meet.
    pub(super) remedy: &'static str,
}

/// All launchers, those first that the later ones may run inside of or be started by: `srun` starts `mpirun`'s helpers,
/// `kolo launch` runs under both. What a user has set by hand is torchrun's and wins over all.
pub static LAUNCHERS: [&Launcher; 4] =
    [&torchrun::TORCHRUN, &openmpi::OPEN_MPI, &hydra::HYDRA, &slurm::SLURM];

/// The launcher that has started this process as a worker.
pub(super) fn of(variables: &Variables) -> Option<&'static Launcher> {
    let found = LAUNCHERS.iter().copied().find(|launcher| (launcher.recognise)(variables));
    // Job scripts set WORLD_SIZE for programs that read the rest from Slurm or MPI. Alone it is half a place, and an error.
    found.or_else(|| variables.has(super::WORLD_SIZE).then_some(&torchrun::TORCHRUN))
}

impl Launcher {
    /// The number in the first of these variables that is set; an error when none is.
    pub(super) fn number(
        &self,
        variables: &Variables,
        names: &'static [&'static str],
    ) -> Result<usize, Error> {
        let missing = || {
            let name = variables.first(names);
            let other = if names == self.rank { self.world_size } else { self.rank };
            let other = variables.first(other);
            Error::environment(name, format!("is not set, though {other} is; set both or none"))
        };
        variables.number_if_set(names)?.ok_or_else(missing)
    }
}
