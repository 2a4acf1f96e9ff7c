//! The core of a replica, and the ways to synchronize the cores of all ranks.
//!
//! A [`Core`] is one rank's layout, values, optimizer and [step](kolo_step::Step). A mode of the table
//! [`SYNCS`](sync::SYNCS) runs the steps of the core: each with all ranks, one step late, in islands, or with
//! servers that hold the weights. [`Config`] chooses it, and [`StepReport`] has the result. kolo-ddp, above
//! this crate, joins both to a replica.

mod config;
mod replica;
mod same_model;
mod same_settings;
mod sharding;
mod staleness;
mod statistics;
pub mod sync;
pub mod verify;
mod warning;

pub use config::Config;
pub use kolo_offload::{check_folder as check_offload_folder, is_in_memory};
pub use replica::{
    Change, Core, FirstParts, FirstValues, GradientTraffic, JobNotes, JobState, Notes, StepReport, StepTimes,
    TakeValues, Undo, assignment, backup, check_offload,
};
pub use same_settings::Stated;
pub use sharding::Sharding;
pub use staleness::Staleness;
pub use statistics::Statistics;
pub use warning::Warning;
