//! Who takes part in a job whose workers may change: some die, others join, and the job goes on.
//!
//! This crate decides which workers form a group, and in which order of ranks; it never sees a gradient, a
//! collective or a tensor, and starts no process. kolo-launch stands above it: it starts and watches the
//! workers, and runs a [`Coordinator`] to which it tells who has started and who has ended. The workers stand
//! above it as well: a training loop (kolo-train) is a [`Member`], which it asks for its next group. Below it
//! are kolo-comm, whose groups members form, and kolo-rendezvous, whose stores carry all messages, so that a
//! job's token and encryption hold here as well.
//!
//! A job lives through *generations*. In each of them a fixed set of workers forms a group; a death, a worker
//! that joins or one that leaves ends it, and the next one begins. A member *arrives* at the coordinator of
//! its node, waits for its *assignment* in the next generation, and forms a group with the others that have
//! got one. The group is like any other; its store is served by the leader.
//!
//! A job of several nodes has a launcher on each, and each launcher a coordinator for its own workers. The
//! coordinator of the launcher that came first is the *leader*: it alone decides. The *followers* pass on
//! what happens to their members, and hand them the leader's replies. When the leader is lost the next
//! launcher in the order of joining leads, and workers notice no more than the end of a generation. Which
//! launcher that is, and who only believes to lead, does not matter to what is trained: an *arbiter* grants
//! each generation to one leader.
//!
//! From the top down; no two files import each other:
//!
//! | module | idea |
//! |---|---|
//! | `coordinator` | what a launcher runs: a store for its node's members, and a thread |
//! | `role` | what the thread does for the job: discover it, lead it, follow its leader |
//! | `follower`, `leader` | the two roles; `context` is what both are told |
//! | `discovery`, `node_config` | how launchers find each other at the start |
//! | `followers`, `follower_state` | the followers as the leader sees them |
//! | `leader_connection` | the leader as a follower reaches it |
//! | `local_members` | the members of a coordinator's own node |
//! | `member`, `regroup_listener` | a worker, and what it hears while it works |
//! | `succession` | which launcher leads next: a pure function |
//! | `arbiter` | which leader may form the next generation |
//! | `claims` | a leader's questions to the arbiter |
//! | `lineage`, `generation` | the generations that the next one may follow |
//! | `worker_set` | when a generation begins and who belongs to it: a pure function |
//! | `launcher_view` | which launchers are there, in which order |
//! | `launcher_protocol`, `worker_protocol`, `events` | what all of these say to one another |
//! | `member_ranks` | the rank that each member has now |
//! | `member_name`, `timeouts` | names of members, and times, on which both sides of a connection agree |

mod arbiter;
mod claims;
mod context;
mod coordinator;
mod discovery;
mod events;
mod follower;
mod follower_state;
mod followers;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod launcher_protocol;
mod launcher_view;
mod leader;
mod leader_connection;
mod lineage;
mod local_members;
mod member;
mod member_name;
mod member_ranks;
#[cfg(test)]
mod model;
mod node_config;
mod regroup_listener;
mod role;
mod succession;
mod timeouts;
mod worker_protocol;
mod worker_set;

pub use arbiter::{ARBITERS, Arbiter, ArbiterKind};
pub use coordinator::Coordinator;
pub use events::{CoordinatorEvent, MemberExit};
pub use member::Member;
pub use member_name::{COORDINATOR, MEMBER, member_name};
pub use member_ranks::MemberRanks;
pub use node_config::NodeConfig;
pub use worker_set::MembershipPolicy;
