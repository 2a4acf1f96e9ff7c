//! The store: a small key-value server on rank 0 at `MASTER_ADDR:MASTER_PORT`, and the failure detector on
//! top.
//!
//! Each rank has two connections to it: one for requests and one that stays open. If the second breaks
//! without a leave message, the rank has died, and the store reports it to all other ranks at once. This
//! star of N connections detects every death, including rank 0's (then all connections break).

mod client;
mod failure_detector;
mod get_once;
mod server;
pub(crate) mod wire;

pub use client::{Gathered, Store};
pub use failure_detector::FailureDetector;
pub use get_once::get_once;
pub use server::Server;
