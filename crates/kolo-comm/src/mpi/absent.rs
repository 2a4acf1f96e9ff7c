//! Groups whose collectives are MPI's. Not in this build: that takes the feature `mpi`.

use crate::backend::Foreign;
use crate::error::Error;
use crate::options::Options;
use crate::rank::Rank;

/// The MPI library this program is linked to.
///
/// # Errors
///
/// There is none in this build.
pub fn library() -> Result<String, Error> {
    Err(absent())
}

pub(crate) fn form(_: Option<(Rank, usize)>, _: &Options) -> Result<Foreign, Error> {
    Err(absent())
}

fn absent() -> Error {
    let remedy = "build it with `cargo build --release --features mpi`, or do without KOLO_BACKEND=mpi";
    Error::Invalid(format!("this program has no MPI in it; {remedy}"))
}

#[cfg(test)]
mod tests {
    use crate::{BackendChoice, Group, Options};

    #[test]
    fn asking_for_mpi_says_how_to_get_it() {
        let place = crate::env::Place {
            rank: crate::Rank(0),
            world_size: 1,
            local_rank: 0,
            master: std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into(),
        };
        let options = Options { backend: BackendChoice::Mpi, ..Options::default() };
        let words = Group::join(&place, &options).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(words.contains("--features mpi"), "{words}");
    }
}
