//! Backends that perform the collectives of this program.

use kolo_comm::{BackendKind, Options};

/// Name of Kolo's own schedules over its own transports.
pub(crate) const NATIVE: &str = "native";

/// Backends that `KOLO_BACKEND` can name besides the native one. A build without MPI lists it too, and
/// explains how to build it in.
pub(crate) static BACKENDS: &[&BackendKind] = &[&kolo_mpi::BACKEND];

/// Name of the collectives over device memory, which run beside a native group of the same ranks.
pub(crate) const NCCL: &str = "nccl";

/// Returns the names that `kolo bench --backend` accepts.
pub(crate) fn names() -> Vec<&'static str> {
    [NATIVE].into_iter().chain(BACKENDS.iter().map(|kind| kind.name)).chain([NCCL]).collect()
}

/// Sets the backend of that name in `options`; an unknown name, or the native one, leaves none.
pub(crate) fn choose(name: &str, options: &mut Options) {
    options.backend = BACKENDS.iter().find(|kind| kind.name == name).copied();
}
