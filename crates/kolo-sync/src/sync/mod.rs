//! Ways to synchronize the shards of a job.
//!
//! A replica is a core (layout, values, optimizer, the step with its collectives; `replica/core.rs`) and a
//! mode (`mode.rs`), which runs the core's steps. Each way to synchronize is a file or a folder here, and a
//! line of [`SYNCS`]:
//!
//! | module | way |
//! |---|---|
//! | `every_step` | each step is one sum over all shards; the default |
//! | `delayed` | the same, with updates that are one step late |
//! | `islands` | parts of the job that synchronize every step among themselves, and rarely with each other |
//! | `stale` | servers hold the weights, and each worker goes at its own pace |
//!
//! `choice` is the mode in a configuration, `traits` the properties of a mode that the rest of a job needs,
//! and `exclusion` the settings that a mode excludes.

mod choice;
mod delayed;
mod every_step;
mod exclusion;
mod islands;
pub mod mode;
mod stale;
mod synchronization;
mod table;
mod traits;

pub use self::choice::SyncMode;
pub use self::exclusion::{Exclusion, JobSetting};
pub use self::synchronization::Synchronization;
pub use self::table::make;
pub use self::table::{SYNCS, find};
pub use self::traits::{Rounds, SyncTraits};
