//! Groups of workers and their collectives. Knows no gradient.
//!
//! A [`Group`] is formed by the ranks of a job over a rendezvous ([`Group::from_env`]), or by threads of one
//! process ([`threads`]). A collective runs on a [`Buffer`] of the group's memory: its [`schedule`] says what
//! each rank sends, adds and receives; the executor runs the schedule over a transport (shared memory or
//! TCP). Sums are added in the order of a [`tree`] that does not depend on who holds what. Another
//! [`backend`] can do the collectives instead.

pub mod backend;
mod collective;
mod collectives;
mod comm_thread;
mod connect;
mod deadline;
mod deferred_sum;
mod element;
mod engine;
mod executor;
mod fingerprint;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod job_membership;
mod kernel;
mod memory;
mod options;
mod pace;
mod pending;
pub mod threads;
mod transport;
mod wait;

pub use collective::Collective;
pub use collectives::Collectives;
pub use deferred_sum::DeferredSum;
pub use element::{Element, Number};
pub use group::{Deferred, Group, Stages, SumParts};
pub use job_membership::{Generation, JobMembership};
pub use memory::{Buffer, copy_nontemporal};
pub use options::{BackendKind, FormGroup, Options};
pub use pace::Pace;
pub use pending::{Pending, Timing};
pub use transport::{Congestion, Distance, SHM, TCP, THREADS, TRANSPORTS, TransportKind};

pub use half::{bf16, f16};
pub use kolo_rendezvous::secure::{Token, host_timeout};
pub use kolo_rendezvous::{BackendError, Error, Interface, InvalidCall, Liveness, env, hash};
pub use kolo_schedule::{self as schedule, DType, Op, Rank, Topology, tree};
