//! Groups of workers and their collectives. This crate knows no gradients.
//!
//! The ranks of a job form a [`Group`] over a rendezvous ([`Group::from_env`]), or threads of one process
//! do ([`threads`]). A collective runs on a [`Buffer`] of the group's memory. Its [`schedule`] lists the
//! sends, additions and receives of each rank; the executor runs it over a transport (shared memory or
//! TCP). Sums are added in the order of a [`tree`] that does not depend on which rank holds which part.
//! Another [`backend`] can run the collectives instead.

pub mod backend;
mod collective;
mod collectives;
mod comm_thread;
mod connect;
mod deadline;
mod deferred_sum;
mod engine;
mod executor;
mod group;
mod job_membership;
mod kernel;
mod options;
mod pace;
mod pending;
pub mod processor;
pub mod threads;

pub use collective::Collective;
pub use collectives::Collectives;
pub use deferred_sum::DeferredSum;
pub use group::{Deferred, Group, Messages, Receiving, Stages, SumParts};
pub use job_membership::{Generation, JobMembership};
pub use options::{BackendKind, FormGroup, Options};
pub use pace::Pace;
pub use pending::{Pending, Timing};
pub use processor::Processor;

pub use kolo_rendezvous::secure::{Token, host_timeout};
pub use kolo_rendezvous::{BackendError, Error, Interface, InvalidCall, Liveness, env, hash};
#[doc(hidden)]
pub use kolo_schedule::opaque_debug;
pub use kolo_schedule::{self as schedule, DType, Op, Rank, ReadBlock, Readers, Topology, tree};
pub use kolo_transport::{
    Buffer, Congestion, Distance, Element, Number, SHM, SharedMemory, TCP, THREADS, TRANSPORTS,
    TransportKind, bf16, copy_nontemporal, f16, interruptible, with_type,
};
