//! Jobs whose workers may change: some die, others come, and the job goes on.
//!
//! A job lives through *generations*. In each of them a fixed set of workers forms a group; a death, a worker that comes or
//! one that leaves ends it, and the next one begins. Who belongs to it is decided by the [`Coordinator`], which the
//! launcher runs because it outlives the workers and knows at once when one of them has ended. A worker is a [`Member`]:
//! it comes to the meeting, waits for its seat, and forms a group with the others who have got one. The group is like any
//! other; its store is served by the coordinator.
//!
//! What they say to one another are values in a store (`words`); what is decided is a pure function (`roster`).

mod coordinator;
mod member;
mod pace;
mod roster;
mod words;

pub use coordinator::{Coordinator, Departure, Order};
pub use member::{Generation, Member};
pub(crate) use pace::Pace;
pub use roster::Rules;

/// Where the job's coordinator listens.
pub const COORDINATOR: &str = "KOLO_COORDINATOR";
/// This worker's name among the job's members: `<node>/<what tells it from others there>`.
pub const MEMBER: &str = "KOLO_MEMBER";
