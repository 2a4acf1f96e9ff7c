//! Groups whose collectives are MPI's: the library that a cluster's vendor has tuned for its network.
//!
//! MPI replaces schedules and transports whole. Chosen by `KOLO_BACKEND=mpi` or [`Options::backend`]; rank and world size are
//! then MPI's own. What differs from native groups:
//!
//! - The order of additions is MPI's. It may depend on the number of ranks, the length and the library, so a sum of floats
//!   has not the same bits everywhere; all ranks of one group do get the same bits from Open MPI and MPICH. 16-bit floats
//!   are added in `f32` and rounded once, which doubles the bytes on the wire.
//! - Nothing waits with a timeout, because a wait inside of MPI cannot be ended. Only at the end a rank waits no longer
//!   than [`Options::timeout`] (five minutes) for the others to end, too.
//! - MPI does not tell who died. A rank that panics, abandons the group or drops it after a failure ends all processes of
//!   the job (`MPI_Abort`) and says why on its standard error; when a process dies, `mpirun` ends the others.
//! - Ranks that call different collectives are not found out: they get wrong numbers or wait for ever. Only messages between
//!   two ranks are checked.
//! - Nobody has to prove that it belongs to the job, and nothing is encrypted: both are up to `mpirun` and the network.
//! - MPI ends with the last group of the process and cannot be started again (`MPI_Finalize`). If the program has started
//!   MPI itself, it ends it, too.

mod backend;
mod communicator;
mod library;
mod moves;
mod sums;

use crate::backend::Foreign;
use crate::error::Error;
use crate::options::Options;
use crate::rank::Rank;

use backend::Mpi;
use communicator::Communicator;

/// The MPI library this program is linked to, as it calls itself.
///
/// # Errors
///
/// The library does not say.
pub fn library() -> Result<String, Error> {
    library::version()
}

/// Starts MPI, or joins what is running in this process. `said` is what the launcher's variables say.
pub(crate) fn form(said: Option<(Rank, usize)>, options: &Options) -> Result<Foreign, Error> {
    if options.algorithm.is_some() || options.transport.is_some() {
        let problem = "algorithm and transport are chosen by MPI";
        let remedy = "unset KOLO_ALGORITHM and KOLO_TRANSPORT, or do without KOLO_BACKEND=mpi";
        return Err(Error::Invalid(format!("{problem}; {remedy}")));
    }
    if options.encrypt {
        let remedy = "unset KOLO_ENCRYPT if the network is your own, or do without KOLO_BACKEND=mpi";
        return Err(Error::Invalid(format!("MPI does not encrypt what it sends; {remedy}")));
    }
    let library = library::enter(options.arrival())?;
    log::debug!("collectives by {}", version_line());
    let communicator = Communicator::of_job(library)?;
    let (rank, world) = (communicator.rank()?, communicator.size()?);
    if let Some((expected, size)) = said.filter(|said| *said != (rank, world)) {
        return Err(Error::Invalid(format!(
            "{expected} of {size} says the launcher, {rank} of {world} says MPI; start the workers with the mpirun of {}",
            version_line(),
        )));
    }
    let name = options.node.as_deref().unwrap_or_default();
    let node = format!("{} {name}", communicator.first_of_node()?);
    let backend = Box::new(Mpi::new(communicator, rank, world));
    Ok(Foreign { backend, rank, world, node, end: |error| library::abort(&error.to_string()) })
}

/// The library's name without its build options.
fn version_line() -> String {
    let version = library().unwrap_or_else(|_| "this program's MPI".into());
    let line = version.lines().next().unwrap_or_default();
    let name = line.split(", package").next().unwrap_or_default().replace(" Version:", "");
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_library_has_a_name() {
        let line = super::version_line();
        assert!(line.contains("MPI") && line.len() < 60, "{line}");
    }
}
