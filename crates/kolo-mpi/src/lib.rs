//! Groups whose collectives are MPI's: the library that a cluster's vendor has tuned for its network.
//!
//! MPI replaces schedules and transports whole. It is chosen by `KOLO_BACKEND=mpi`, or by [`BACKEND`] in
//! [`kolo_comm::Options::backend`]; rank and world size are then MPI's own. What differs from native groups:
//!
//! - The order of additions is MPI's. It may depend on the number of ranks, the length and the library, so a
//!   sum of floats has not the same bits everywhere; all ranks of one group do get the same bits from Open
//!   MPI and MPICH. 16-bit floats are added in `f32` and rounded once, which doubles the bytes on the wire.
//! - Nothing waits with a timeout, because a wait inside of MPI cannot be ended. Only at the end a rank waits
//!   no longer than [`kolo_comm::Options::timeout`] (five minutes) for the others to end, too.
//! - MPI does not tell who died. A rank that panics, abandons the group or drops it after a failure ends all
//!   processes of the job (`MPI_Abort`) and says why on its standard error; when a process dies, `mpirun`
//!   ends the others.
//! - Ranks that call different collectives are not found out: they get wrong numbers or wait for ever. Only
//!   messages between two ranks are checked.
//! - Nobody has to prove that it belongs to the job, and nothing is encrypted: both are up to `mpirun` and
//!   the network.
//! - MPI ends with the last group of the process and cannot be started again (`MPI_Finalize`). If the program
//!   has started MPI itself, it ends it, too.
//!
//! This crate sees buffers and collectives, never a schedule or a transport. kolo-comm stands below it; a
//! program hands [`BACKEND`] to [`kolo_comm::Options::from_env_with`]. Built without the feature `mpi` it
//! links nothing, and forming a group says how to build it.

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
