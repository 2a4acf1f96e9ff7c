//! Forms the job's group over MPI.

use kolo_comm::Options;
use kolo_comm::backend::FormedBackend;
use kolo_rendezvous::{BackendError, Error, env};
use kolo_schedule::Rank;

use crate::backend::Mpi;
use crate::call;
use crate::communicator::Communicator;
use crate::library::enter;

/// Returns the name of the MPI library this program is linked to, as the library reports it.
///
/// # Errors
///
/// The library does not report its name.
pub fn library() -> Result<String, Error> {
    call::version()
}

/// Starts MPI, or joins the running MPI. `launcher` is the rank and number of ranks in its variables.
pub(super) fn form(launcher: Option<(Rank, usize)>, options: &Options) -> Result<FormedBackend, Error> {
    let unsupported = [
        (options.algorithm.is_some(), env::ALGORITHM),
        (options.transport.is_some(), env::TRANSPORT),
        (options.encrypt, env::ENCRYPT),
    ];
    if let Some((_, option)) = unsupported.into_iter().find(|(is_set, _)| *is_set) {
        return Err(BackendError::Option { backend: "mpi".into(), option: option.into() }.into());
    }
    let library = enter(options.arrival())?;
    log::debug!("collectives by {}", version_line());
    let communicator = Communicator::of_job(library)?;
    let (rank, world) = (communicator.rank, communicator.world);
    if let Some((expected, expected_world)) = launcher.filter(|launcher| *launcher != (rank, world)) {
        let library = version_line();
        return Err(BackendError::Launcher { expected, expected_world, rank, world, library }.into());
    }
    let name = options.node.as_deref().unwrap_or_default();
    let node = format!("{} {name}", communicator.first_of_node()?);
    let backend = Box::new(Mpi(communicator));
    Ok(FormedBackend { backend, rank, world, node, end: |error| call::abort(&error.to_string()) })
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
