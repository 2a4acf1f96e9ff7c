//! Which workers are there, and when they form a generation: the leader's decisions, without its connections.
//!
//! The leader tells a [`WorkerSet`] what it hears of members. [`WorkerSet::decide`] is a pure function of
//! that and of the time: it returns an [`Action`] and its reason. [`WorkerSet::apply`] takes note that the
//! leader acts on it.

mod action;
mod decide;
mod policy;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use action::{Action, Candidate, Decision};
pub use policy::MembershipPolicy;
pub(crate) use state::WorkerSet;
