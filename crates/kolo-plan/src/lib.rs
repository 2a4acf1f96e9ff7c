//! What collectives, steps and whole trainings take on a given cluster, before anyone rents it.
//!
//! ```
//! use kolo_plan::{Cluster, forecast};
//! use kolo_schedule::{DType, Operation};
//!
//! // 64 GPUs, eight to a node, 10 Gbit/s between nodes; the gradient of 25 million parameters.
//! let cluster = Cluster::over_ethernet(64, 8, 10.0);
//! let ranked = forecast(&Operation::AllReduce, 25_000_000, DType::F32, &cluster);
//! println!("{} takes {:.3} s", ranked[0].algorithm.name, ranked[0].seconds);
//! assert!(ranked[0].seconds < 0.2);
//! ```
//!
//! Costs are counted on the very schedules that are executed and proved (kolo-schedule): no second
//! description of an algorithm exists that could be wrong in its own way.
//!
//! | module | idea |
//! |---|---|
//! | `cluster`, `cluster_file`, `links`, `cores` | ranks, nodes, what lies between them, and the cores they share |
//! | `forecast` | what each algorithm takes for one collective |
//! | [`step`] | a profiled step on more workers |
//! | [`stragglers`], `failures` | what the slowest and the dead cost the others |
//! | [`memory`] | what each worker holds |
//! | [`training`] | a whole training: time, energy, money, and what binds |

mod cluster;
mod cluster_file;
mod cores;
mod failures;
mod forecast;
mod links;
pub mod memory;
pub mod step;
pub mod stragglers;
pub mod training;

pub use cluster::Cluster;
pub use cluster_file::{ClusterError, ClusterFile, LinkChoice};
pub use cores::Cores;
pub use failures::{Checkpoints, Failures};
pub use forecast::{Forecast, forecast};
pub use links::{LINKS, LinkKind};
