//! The backends that `KOLO_BACKEND` can name in this program, besides the native one.

use kolo_comm::BackendKind;

/// The MPI backend is listed even where it is not built in: then it says how to build it.
pub(crate) static BACKENDS: &[&BackendKind] = &[&kolo_mpi::BACKEND];
