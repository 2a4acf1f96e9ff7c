//! The store: a small key-value server of rank 0 at `MASTER_ADDR:MASTER_PORT`, and the failure detector that
//! rests on it.
//!
//! Each rank keeps two connections to it: one for requests, one that just stays open. When the second breaks
//! without a leave, the rank has died, and the store tells all others its name at once. A star of N
//! connections thus sees every death, rank 0's included (then all connections break).

mod client;
mod failure_detector;
mod get_once;
mod server;
pub(crate) mod wire;

pub use client::{Gathered, Store};
pub use failure_detector::FailureDetector;
pub use get_once::get_once;
pub use server::Server;
