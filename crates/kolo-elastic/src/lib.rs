//! Membership of a job whose workers may change: some die, others join, and the job goes on.
//!
//! This crate decides which workers form a group and in which order of ranks. It never sees a gradient, a
//! collective or a tensor, and it starts no process. Two crates stand above it. kolo-launch starts and
//! watches the workers, runs a [`Coordinator`] and reports to it which workers have started and ended.
//! kolo-train's training loop is a [`Member`] and asks it for the next group. Below it are kolo-comm, whose
//! groups the members form, and kolo-rendezvous, whose stores carry all messages, so a job's token and
//! encryption apply here as well.
//!
//! A job runs in *generations*. In each generation a fixed set of workers forms a group. A death, a worker
//! that joins or a worker that leaves ends the generation, and the next one begins. A member *arrives* at
//! the coordinator of its node, waits for its *assignment* in the next generation, and forms a group with
//! the other assigned members. The leader serves the store of that group.
//!
//! In a job of several nodes, each node has a launcher, and each launcher has a coordinator for its own
//! workers. The coordinator of the launcher that came first is the *leader*: it alone decides. The
//! *followers* report to the leader what happens to their members, and pass the leader's replies on to them.
//! When the leader is lost, the next launcher in the order of joining leads; workers notice no more than the
//! end of a generation. Training stays correct even if several launchers believe that they lead, because an
//! *arbiter* grants each generation to one leader.
//!
//! From the top down; no two files import each other:
//!
//! | module | idea |
//! |---|---|
//! | `coordinator` | the store for a node's members, and the thread, that a launcher runs |
//! | `driver` | clocks, connections, threads: passes events to the protocol and carries out its effects |
//! | `member`, `regroup_listener` | a worker, and its background connection while it works |
//! | `fixed_worker` | the report of a worker that is no member |
//! | `coordinator_connection` | the connection to the coordinator that both of these use |
//! | `protocol` | all decisions, as a state and a function of events |
//! | `model` | a model checker runs the protocol through orders of events (tests only) |
//! | `arbiter` | decides which leader may form the next generation |
//! | `generation` | names of generations, their members, and the history of a member |
//! | `launcher_view` | the launchers of a job, in their order |
//! | `launcher_protocol`, `worker_protocol`, `events` | the messages between all of these |
//! | `member_ranks` | the current rank of each member |
//! | `node_config`, `ids` | a launcher's settings for its job, and its unique id |
//! | `stop_signals` | signals that ask a job or a worker to end |
//! | `member_name`, `timeouts` | names of members, and times, on which both sides of a connection agree |

mod arbiter;
mod coordinator;
mod coordinator_connection;
mod driver;
mod events;
mod fixed_worker;
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
// Tests of the protocol from within: they are beside the others, and no part of the library.
#[cfg(test)]
#[path = "../tests/model/mod.rs"]
mod model;
mod node_config;
mod protocol;
mod regroup_listener;
mod saving;
mod stop_signals;
mod timeouts;
mod worker_protocol;
mod working;

pub use arbiter::{ARBITERS, Arbiter, ArbiterKind, Needs};
pub use coordinator::Coordinator;
pub use events::{CoordinatorEvent, EndCause, MemberExit, Obstacle, WRONG_INPUT};
pub use fixed_worker::report_fixed;
pub use member::Member;
pub use member_name::{COORDINATOR, MEMBER, member_name, node_rank_of};
pub use member_ranks::MemberRanks;
pub use node_config::NodeConfig;
pub use protocol::MembershipPolicy;
pub use saving::{Saving, note_of, saving};
pub use stop_signals::{STOP_ON, StopRequest, StopRequests, StopSignal, stop_signals};
pub use working::{Working, working};
