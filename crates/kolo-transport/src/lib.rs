//! Messages between the ranks of a group. This crate runs no schedules.
//!
//! The ranks of a new group publish their addresses ([`connect()`]), and every pair takes the nearest
//! [transport](TRANSPORTS) between them. [`Routes`] moves segments of a [`Buffer`] to each peer. On one
//! host peers read a buffer in place. A message carries the [`Fingerprint`] of its collective, and every
//! wait has a [`WaitContext`], which ends it when a peer has failed.

mod connect;
mod element;
mod fingerprint;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod memory;
mod transport;
mod wait;

pub use connect::{Connected, Exchange, connect};
pub use element::{Element, Number};
pub use fingerprint::{Call, CollectiveKind, Fingerprint};
pub use memory::{
    Backing, Block, Buffer, HostFile, HostPages, Lending, Memory, PeerMemory, Place, Pool, Segment,
    SharedMemory, copy_nontemporal,
};
pub use transport::{
    Congestion, Connecting, Connector, Distance, GroupContext, InPlace, OpenConnector, OpenedConnector,
    Progress, Routes, SHM, TCP, THREADS, TRANSPORTS, Transport, TransportKind, connect_threads,
};
pub use wait::{LINGER, WaitContext, WaitMode, interruptible};

pub use half::{bf16, f16};
pub use kolo_schedule::DType;
