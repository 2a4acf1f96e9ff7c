//! The backends that `KOLO_BACKEND` can name in this program, besides the native one.

use kolo_comm::BackendKind;

/// MPI says how to build it in where it is not.
pub(crate) static BACKENDS: &[&BackendKind] = &[&kolo_mpi::BACKEND];
