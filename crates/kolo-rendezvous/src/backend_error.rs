//! Errors of a library (MPI, NCCL) that runs the collectives instead of Kolo's own engine.

use serde::{Deserialize, Serialize};

use kolo_schedule::Rank;
use kolo_schedule::words::counted;

/// A reason why a backend (MPI, NCCL) cannot do what the program requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum BackendError {
    /// The program was built without the backend.
    #[error(
        "this program was built without {backend}; build it with `cargo build --release --features {backend}`, or do \
         without KOLO_BACKEND={backend}"
    )]
    NotBuilt { backend: String },
    /// An option is set that the backend does not support.
    #[error("the backend {backend} has no {option}; unset {option}, or unset KOLO_BACKEND")]
    Option { backend: String, option: String },
    /// The backend adds in its own order.
    #[error("{backend} adds in its own order; use the native group for sums in tree order")]
    TreeOrder { backend: String },
    /// The workers were started by another launcher than the backend's own.
    #[error(
        "the launcher calls this worker {expected} of {expected_world}, and MPI {rank} of {world}; start the workers with the mpirun \
         of {library}"
    )]
    Launcher {
        /// Rank of this process by the launcher's variables.
        expected: Rank,
        /// Number of ranks by the launcher's variables.
        expected_world: usize,
        /// Rank of this process by the backend.
        rank: Rank,
        /// Number of ranks by the backend.
        world: usize,
        library: String,
    },
    /// The backend has ended; it can be started only once in a process.
    #[error(
        "{backend} has ended in this process and cannot be started again; keep the first group until the last one is done"
    )]
    Ended { backend: String },
    /// One rank lacks the library or the device.
    #[error("{rank} cannot take part in {backend}: {cause}")]
    Absent { rank: Rank, backend: String, cause: String },
    /// Two ranks have different versions of the backend's library.
    #[error(
        "{first} has {backend} {first_version}, but {second} has {second_version}; install one version everywhere"
    )]
    Versions { backend: String, first: Rank, first_version: String, second: Rank, second_version: String },
    /// Two ranks use one device.
    #[error("{first} and {second} use the same device; give each rank of {backend} its own")]
    SameDevice { backend: String, first: Rank, second: Rank },
    /// No device has that number.
    #[error("there is no CUDA device {number}: this process sees {}", counted(count, "CUDA device"))]
    NoDevice { number: usize, count: usize },
}
