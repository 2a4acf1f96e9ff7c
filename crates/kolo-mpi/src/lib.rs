//! Groups whose collectives are MPI's: the library that a cluster's vendor has tuned for its network.
//!
//! MPI replaces schedules and transports completely. `KOLO_BACKEND=mpi` or [`kolo_comm::Options::backend`]
//! selects it; rank and world size then come from MPI. It differs from native groups:
//!
//! - The order of additions is MPI's. It may depend on the number of ranks, the length and the library, so
//!   sums of floats do not have the same bits everywhere. With Open MPI and MPICH all ranks of one group get
//!   the same bits. 16-bit floats are added in `f32` and rounded once, which doubles the bytes sent.
//! - Waits have no timeout, because a wait inside MPI cannot be ended. Only at the end does a rank wait
//!   no longer than [`kolo_comm::Options::timeout`] (five minutes) for the others to end, too.
//! - MPI does not report which rank died. A rank that panics, abandons the group or drops it after a
//!   failure ends all processes of the job (`MPI_Abort`) and prints the reason to its standard error.
//!   When a process dies, `mpirun` ends the others.
//! - Ranks that call different collectives are not detected: they get wrong numbers or wait forever. Only
//!   messages between two ranks are checked.
//! - There is no authentication and no encryption: both are up to `mpirun` and the network.
//! - MPI ends with the last group of the process and cannot be started again (`MPI_Finalize`). A program
//!   that starts MPI itself must also end it.
//!
//! This crate sees buffers and collectives, never a schedule or a transport; it depends on kolo-comm. A
//! program passes [`BACKEND`] to [`kolo_comm::Options::from_env_with`]. Without the feature `mpi` this
//! crate links no library, and forming a group fails with an error that explains how to build it.

use kolo_comm::BackendKind;

#[cfg(feature = "mpi")]
mod backend;
#[cfg(feature = "mpi")]
mod call;
#[cfg(feature = "mpi")]
mod communicator;
#[cfg(feature = "mpi")]
mod data_movement;
#[cfg(feature = "mpi")]
mod extremes;
#[cfg(feature = "mpi")]
mod form;
#[cfg(not(feature = "mpi"))]
#[path = "absent.rs"]
mod form;
#[cfg(feature = "mpi")]
mod library;
#[cfg(feature = "mpi")]
mod reductions;
#[cfg(feature = "mpi")]
mod view;

pub use form::library;

/// MPI as a backend of groups.
pub static BACKEND: BackendKind = BackendKind { name: "mpi", form: form::form };
