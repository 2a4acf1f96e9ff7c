//! The leader of a job: the coordinator that receives the events of the members of all nodes, and decides
//! about them.
//!
//! | file | idea |
//! |---|---|
//! | `state` | the leader's knowledge, and its changes with events |
//! | `decide` | decisions, and claims on generations |
//! | `act` | messages to members and followers after a decision |

mod act;
mod decide;
mod state;

pub(crate) use state::Leader;
