//! Predicts the time of collectives, steps and whole trainings on a given cluster, before anyone rents it.
//!
//! ```
//! use kolo_plan::{Cluster, forecast};
//! use kolo_schedule::{DType, Operation};
//!
//! // 64 GPUs, eight per node, 10 Gbit/s between nodes; the gradient of 25 million parameters.
//! let cluster = Cluster::over_ethernet(64, 8, 10.0);
//! let ranked = forecast(&Operation::AllReduce, 25_000_000, DType::F32, &cluster);
//! println!("{} takes {:.3} s", ranked[0].algorithm.name, ranked[0].seconds);
//! assert!(ranked[0].seconds < 0.2);
//! ```
//!
//! Costs are counted on the schedules that kolo-schedule proves and kolo-comm executes: there is no second
//! description of an algorithm that could differ from the first.
//!
//! | module | content |
//! |---|---|
//! | `cluster`, `cluster_file`, `links`, `cores` | ranks, nodes, their links, and shared cores |
//! | `forecast` | time of one collective with each algorithm |
//! | [`step`] | a profiled step on more workers |
//! | [`stragglers`], `failures` | cost of the slowest worker and of failures |
//! | [`memory`] | memory of each worker |
//! | [`training`] | a whole training: time, energy, price, and what limits it |

mod cluster;
mod cluster_file;
mod cores;
mod failures;
mod forecast;
mod links;
pub mod memory;
pub mod memory_table;
pub mod step;
pub mod stragglers;
pub mod training;

pub use cluster::Cluster;
pub use cluster_file::{ClusterError, ClusterFile, LinkChoice};
pub use cores::Cores;
pub use failures::{Checkpoints, Failures};
pub use forecast::{Forecast, forecast};
pub use links::{LINKS, LinkKind};
