//! The rendezvous: a small key-value store that rank 0 serves at `MASTER_ADDR:MASTER_PORT`, and the watch over who
//! is still alive.
//!
//! Each rank keeps two connections to it: one for questions, one that just stays open. When the second breaks
//! without a goodbye, the rank has died, and everybody else hears its name at once. A star of N connections thus
//! sees every death, rank 0's included (then all watches break).

mod client;
mod probe;
mod server;
pub mod wire;

pub use client::{Store, Watch};
pub use probe::probe;
pub use server::Server;
