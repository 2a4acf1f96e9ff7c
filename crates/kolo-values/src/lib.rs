//! Values of a model that are divided among ranks: each rank holds a part, and gathers a tensor when it is
//! used (stage 3 of Rajbhandari et al. 2020, "ZeRO").
//!
//! A gather asks the owners of a tensor for their parts by [messages](kolo_comm::Messages), and a thread of
//! each owner answers. It is no collective: ranks may use tensors in any order, some more often than others,
//! and a rank without a shard, or in the middle of an evaluation, holds up nobody. A request names the
//! version of the values that it needs. A rank asks for the next version only when a step is over, for which
//! it needs all ranks, so no rank needs an old one any more.
//!
//! Ranks that share a host read each other's parts from memory, without a message. Otherwise a rank asks one
//! of a part's owners, on its own host if there is one. When ranks die, leave or join, [`handover`] decides
//! which ranks' parts count, and who sends what to whom.
//!
//! The ranks compare the tensors that all of them have by [`fingerprints`] ([`drift`]).

pub mod address_space;
mod ahead;
pub mod division;
pub mod drift;
pub mod fingerprints;
mod flat;
mod flat_memory;
pub mod freed_memory;
mod gather;
pub mod handover;
#[cfg(test)]
mod handover_tests;
mod host_values;
mod lendable;
mod neighbors;
mod region;
mod serving;
mod undo;

pub use flat::FlatValues;
pub use gather::{AHEAD, DividedValues};
pub use host_values::{HostValues, MapVersion};
pub use lendable::{LendableValues, Loan};
pub use region::{MemoryPlace, Region};
pub use serving::PIECE;
pub use undo::Undo;
