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
//! | `driver` | clocks, connections, threads: tells the protocol what happens, and does what that wants |
//! | `member`, `regroup_listener` | a worker, and what it hears while it works |
//! | `coordinator_connection` | by what both of these reach the coordinator |
//! | `protocol` | all decisions, as a value: a state and a function of events |
//! | `model` | a model checker runs the protocol through orders of events (tests only) |
//! | `arbiter` | which leader may form the next generation |
//! | `generation` | what a generation is called and who has been in it |
//! | `launcher_view` | which launchers are there, in which order |
//! | `launcher_protocol`, `worker_protocol`, `events` | what all of these say to one another |
//! | `member_ranks` | the rank that each member has now |
//! | `node_config`, `ids` | what a launcher is told of its job, and what tells it from others |
//! | `stop_signals` | signals that ask a job or a worker to end |
//! | `member_name`, `timeouts` | names of members, and times, on which both sides of a connection agree |

mod arbiter;
mod coordinator;
mod coordinator_connection;
mod driver;
mod events;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod ids;
mod launcher_protocol;
mod launcher_view;
mod member;
mod member_name;
mod member_ranks;
#[cfg(test)]
mod model;
mod node_config;
mod protocol;
mod regroup_listener;
mod stop_signals;
mod timeouts;
mod worker_protocol;
mod working;

pub use arbiter::{ARBITERS, Arbiter, ArbiterKind};
pub use coordinator::Coordinator;
pub use events::{CoordinatorEvent, MemberExit};
pub use member::Member;
pub use member_name::{COORDINATOR, MEMBER, member_name};
pub use member_ranks::MemberRanks;
pub use node_config::NodeConfig;
pub use protocol::MembershipPolicy;
pub use stop_signals::{STOP_ON, StopRequest, StopRequests, StopSignal, stop_signals};
pub use working::{Working, working};
