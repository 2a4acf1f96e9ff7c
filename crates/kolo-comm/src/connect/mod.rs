//! Connects the ranks that form a group.

mod job;
mod open_files;
mod peers;

pub(crate) use job::{StoreHost, StoreSession, form};
pub(crate) use peers::{Connected, connect};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use peers::{decode_for_fuzzing, seed_for_fuzzing};
