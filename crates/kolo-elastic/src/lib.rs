//! Jobs whose workers may change: some die, others come, and the job goes on.
//!
//! A job lives through *generations*. In each of them a fixed set of workers forms a group; a death, a worker that comes or
//! one that leaves ends it, and the next one begins. Who belongs to it is decided by the [`Coordinator`], which the
//! launcher runs because it outlives the workers and knows at once when one of them has ended. A worker is a [`Member`]:
//! it comes to the meeting, waits for its seat, and forms a group with the others who have got one. The group is like any
//! other; its store is served by the coordinator.
//!
//! What they say to one another are values in a store (`words`); what is decided is a pure function (`roster`).
//!
//! A job of several nodes has a launcher on each, and each a coordinator for its own workers. The coordinators know each other;
//! the one that has come first leads: the others pass on to it what their workers say, and their seats back. When it is
//! gone the next one leads, and workers notice no more than the end of a generation.
//!
//! | module | idea |
//! |---|---|
//! | `coordinator`, `orders`, `role`, `home` | one for each launcher; what it does for the job; its own workers |
//! | `member`, `pace` | a worker; how long it may take |
//! | `roster` | which workers are there, and when a generation begins |
//! | `roll` | which launchers are there, and who leads |
//! | `lead`, `crew` | the one that leads; the others as it sees them |
//! | `follow`, `line` | one that does not lead; its connection to the one that does |
//! | `seek` | how launchers find each other |
//! | `words`, `talk` | what workers and coordinators, and coordinators among themselves, say |

mod coordinator;
mod crew;
mod follow;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod home;
mod job_membership;
mod lead;
mod line;
mod member;
mod orders;
mod role;
mod roll;
mod roster;
mod seek;
mod talk;
mod words;

use std::time::Duration;

pub use coordinator::Coordinator;
pub use kolo_comm::Generation;
pub use member::Member;
pub use orders::{Departure, Order};
pub use roster::Rules;
pub use seek::Nodes;

/// Where the job's coordinator listens.
pub const COORDINATOR: &str = "KOLO_COORDINATOR";
/// This worker's name among the job's members: `<node>/<what tells it from others there>`.
pub const MEMBER: &str = "KOLO_MEMBER";

/// How long a job may take to begin.
const START: Duration = Duration::from_secs(300);

/// The name of a member: which node, which of its workers, and how many there have been in its place before.
pub fn member_name(node: usize, local: usize, before: usize) -> String {
    format!("node{node}/{local}.{before}")
}

/// The node in a member's name.
fn node_of(member: &str) -> Option<usize> {
    member.strip_prefix("node")?.split('/').next()?.parse().ok()
}
