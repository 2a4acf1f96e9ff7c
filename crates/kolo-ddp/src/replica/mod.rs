//! One worker's share of the model: the core and the way to synchronize it.

mod backup;
#[cfg(test)]
mod drift_tests;
mod elastic;
#[cfg(test)]
mod halfway_tests;
mod handle;
mod joining;
mod owned_state;
mod saved;
mod steps;

pub use self::handle::Replica;
pub(crate) use self::owned_state::{OwnedState, order_in_files};
