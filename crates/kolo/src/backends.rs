//! What does the work of collectives in this program.

use kolo_comm::{BackendKind, Options};

/// Kolo's own schedules over its own transports.
pub(crate) const NATIVE: &str = "native";

/// The backends that `KOLO_BACKEND` can name besides the native one; MPI says how to build it in where it is
/// not.
pub(crate) static BACKENDS: &[&BackendKind] = &[&kolo_mpi::BACKEND];

/// Collectives over device memory, beside a native group of the same ranks.
pub(crate) const NCCL: &str = "nccl";

/// The names that `kolo bench --backend` knows.
pub(crate) fn names() -> Vec<&'static str> {
    [NATIVE].into_iter().chain(BACKENDS.iter().map(|kind| kind.name)).chain([NCCL]).collect()
}

/// Lets a group be formed by the backend of that name, or by none besides the native one.
pub(crate) fn choose(name: &str, options: &mut Options) {
    options.backend = BACKENDS.iter().find(|kind| kind.name == name).copied();
}
