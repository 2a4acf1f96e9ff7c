//! What can go wrong with a library that does the collectives instead of Kolo's own engine.

use serde::{Deserialize, Serialize};

use kolo_schedule::Rank;

/// Why a backend (MPI, NCCL) cannot do what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum BackendError {
    /// The program was built without the backend.
    #[error(
        "this program was built without {backend}; build it with `cargo build --release --features {backend}`, or do \
         without KOLO_BACKEND={backend}"
    )]
    NotBuilt {
        /// The backend's name, which is also the feature's.
        backend: String,
    },
    /// An option is set that the backend has no use for.
    #[error(
        "the backend {backend} does not know {option}: unset {option}, or do without KOLO_BACKEND={backend}"
    )]
    Option {
        /// The backend's name.
        backend: String,
        /// The option, by its environment variable.
        option: String,
    },
    /// The backend adds in an order of its own.
    #[error("{backend} adds in an order of its own: sums in tree order are made by the native group")]
    TreeOrder {
        /// The backend's name.
        backend: String,
    },
    /// Another launcher has started the workers than the one that the backend asks.
    #[error(
        "{expected} of {expected_world} says the launcher, {rank} of {world} says MPI; start the workers with the mpirun \
         of {library}"
    )]
    Launcher {
        /// This process's rank, as the launcher's variables say.
        expected: Rank,
        /// Number of ranks, as the launcher's variables say.
        expected_world: usize,
        /// This process's rank, as the backend says.
        rank: Rank,
        /// Number of ranks, as the backend says.
        world: usize,
        /// The backend's library, as it calls itself.
        library: String,
    },
    /// The backend has ended, and runs once in a process.
    #[error(
        "{backend} has ended in this process and cannot be started again; keep the first group until the last one is done"
    )]
    Ended {
        /// The backend's name.
        backend: String,
    },
    /// One rank has no such library or device.
    #[error("{rank} cannot take part in {backend}: {cause}")]
    Absent {
        /// The rank, of the job.
        rank: Rank,
        /// The backend's name.
        backend: String,
        /// That rank's own error.
        cause: String,
    },
    /// Two ranks have different versions of the backend's library.
    #[error(
        "{first} has {backend} {first_version}, but {second} has {second_version}; install one version everywhere"
    )]
    Versions {
        /// The backend's name.
        backend: String,
        /// A rank of the job, and its version.
        first: Rank,
        /// The version of the first one.
        first_version: String,
        /// Another rank of the job.
        second: Rank,
        /// The version of the second one.
        second_version: String,
    },
    /// Two ranks use one device.
    #[error("{first} and {second} use the same device; {backend} needs one for each rank")]
    SameDevice {
        /// The backend's name.
        backend: String,
        /// A rank of the job.
        first: Rank,
        /// Another rank of the job.
        second: Rank,
    },
    /// There is no device of that number.
    #[error("there is no CUDA device {number}: this process sees {count} CUDA device{}", if *count == 1 { "" } else { "s" })]
    NoDevice {
        /// The number that was asked for.
        number: usize,
        /// How many devices this process sees.
        count: usize,
    },
}
