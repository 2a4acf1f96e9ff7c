//! The lock-free part of kolo-transport's mailbox, compiled with the atomics of loom, which goes through all
//! orders in which threads can meet there. A build of its own, which needs nothing else of the workspace:
//!
//! ```sh
//! bash bench/concurrency.sh loom
//! ```
#![cfg(all(test, loom))]

#[allow(dead_code, reason = "the mailbox uses more of it")]
#[path = "../../crates/kolo-transport/src/transport/shared_memory/lane.rs"]
mod lane;
mod sync;
mod tests;
