//! The leader of a job: the coordinator that hears of the members of all nodes, and decides about them.
//!
//! | file | idea |
//! |---|---|
//! | `state` | what it knows, and how that changes with what it hears |
//! | `decide` | what follows: who is asked, what is claimed |
//! | `act` | what it says to members and followers once it has decided |

mod act;
mod decide;
mod state;

pub(crate) use state::Leader;
