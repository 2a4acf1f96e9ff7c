//! Groups of workers and their collectives. Knows no gradient.
//!
//! A [`Group`] is formed by the ranks of a job over a rendezvous ([`Group::from_env`]), or by threads of one process
//! ([`threads`]). A collective runs on a [`Buffer`] of the group's memory: its [`schedule`] says what each rank sends,
//! adds and receives; the executor runs the schedule over a transport (shared memory or TCP). Sums are added in
//! the order of a [`tree`] that does not depend on who holds what. MPI can do the collectives instead (see [`mpi`]).

mod backend;
mod call;
mod calls;
mod collective;
mod deadline;
pub mod elastic;
mod element;
mod engine;
pub mod env;
mod error;
mod executor;
mod fused;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
pub mod hash;
mod interface;
mod job_membership;
mod kernel;
mod liveness;
mod measure;
mod membership;
mod memory;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "mpi/absent.rs"]
pub mod mpi;
pub mod nccl;
mod options;
mod rank;
mod rendezvous;
pub mod schedule;
mod secure;
mod split;
mod store;
pub mod threads;
mod topology;
mod transport;
pub mod tree;
mod worker;

pub use backend::BackendChoice;
pub use collective::Collective;
pub use element::{DType, Element, Number, Op};
pub use error::Error;
pub use group::Group;
pub use interface::Interface;
pub use job_membership::{Generation, JobMembership};
pub use membership::TransportChoice;
pub use memory::Buffer;
pub use options::Options;
pub use rank::Rank;
pub use secure::Token;
pub use topology::Topology;
pub use worker::{Pending, Timing};

pub use half::{bf16, f16};
