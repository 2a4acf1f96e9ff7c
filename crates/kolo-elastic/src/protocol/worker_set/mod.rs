//! The known workers, and the generations that they form: the leader's decisions, without its connections.
//!
//! The leader passes all events of members to a [`WorkerSet`]. [`WorkerSet::decide`] is a pure function of
//! them and of the time: it returns an [`Action`] and its reason. [`WorkerSet::apply`] records that the
//! leader acts on it.

mod action;
mod decide;
mod policy;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use action::{Action, Candidate, Decision, GivingUp};
pub use policy::MembershipPolicy;
pub(crate) use state::WorkerSet;
