//! One copy of a job's state for all workers of a host: two versions of the values and the optimizer's state,
//! in an anonymous file that every worker maps ([`HostMemory`]).
//!
//! An update takes the following way. Each block of 16,384 elements, or each tensor where the rule needs
//! whole ones, has one owner.
//!
//! 1. Each owner writes the sums of its gradients to the place of the next values.
//! 2. When all sums are there, the update has begun. From now on it can only be completed.
//! 3. Each owner steps its blocks: it copies sums and state of a block to a journal, writes the next values
//!    and the new state, and marks the block as done.
//! 4. When all blocks are done, all workers switch to the next values.
//!
//! If a worker dies before 2, nothing has changed, and the step is repeated. If it dies later, the others put
//! back what journals hold of blocks that are not done, and step all such blocks. [`decide`] says which of
//! both it is.
//!
//! Below this crate, `kolo_values` reads the values; above it, `kolo_sync` runs the steps.

#![doc = include_str!("../README.md")]

pub mod aim;
mod decision;
mod host_store;
mod members;
mod memory;
mod places;
mod state;
#[cfg(test)]
mod tests;

pub use decision::{Decision, HostReport, Role, decide};
pub use host_store::HostStore;
pub use kolo_values::MemoryPlace;
pub use members::Member;
pub use memory::HostMemory;
pub use places::MOST_WORKERS;
pub use state::HostState;
