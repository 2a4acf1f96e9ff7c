//! Forming the job's group over MPI.

use kolo_comm::Options;
use kolo_comm::backend::FormedBackend;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

use crate::backend::Mpi;
use crate::communicator::Communicator;
use crate::library;

/// The MPI library this program is linked to, as it calls itself.
///
/// # Errors
///
/// The library does not say.
pub fn library() -> Result<String, Error> {
    library::version()
}

/// Starts MPI, or joins what is running in this process. `said` is what the launcher's variables say.
pub(super) fn form(said: Option<(Rank, usize)>, options: &Options) -> Result<FormedBackend, Error> {
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
    Ok(FormedBackend { backend, rank, world, node, end: |error| library::abort(&error.to_string()) })
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
