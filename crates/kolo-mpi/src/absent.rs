//! Stand-in for the MPI backend in builds without the feature `mpi`.

use kolo_comm::Options;
use kolo_comm::backend::FormedBackend;
use kolo_rendezvous::{BackendError, Error};
use kolo_schedule::Rank;

/// Returns the MPI library this program is linked to.
///
/// # Errors
///
/// There is none in this build.
pub fn library() -> Result<String, Error> {
    Err(absent())
}

pub(super) fn form(_: Option<(Rank, usize)>, _: &Options) -> Result<FormedBackend, Error> {
    Err(absent())
}

fn absent() -> Error {
    BackendError::NotBuilt { backend: "mpi".into() }.into()
}

#[cfg(test)]
mod tests {
    use kolo_comm::{Group, Options, Rank, env::WorkerEnv};

    #[test]
    fn without_mpi_the_error_explains_how_to_build_it() {
        let master = std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into();
        let place = WorkerEnv { rank: Rank(0), world_size: 1, endpoint: master };
        let options = Options { backend: Some(&crate::BACKEND), ..Options::default() };
        let message = Group::join(&place, &options).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("--features mpi"), "{message}");
    }
}
