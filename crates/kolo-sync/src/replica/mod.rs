//! One rank's share of the model: flat parameters, the optimizer and the step.

pub mod assignment;
pub mod backup;
pub(crate) mod core;
mod divided;
mod first_values;
mod handover;
mod host;
mod joining;
pub(crate) mod notes;
mod offload;
mod overflow;
pub(crate) mod report;
mod saved;
mod state_share;
pub(crate) mod stepping;
mod straggler_observer;
mod tuning;
mod tuning_observer;
mod update;
pub(crate) mod weights;

pub use self::core::Core;
pub use self::first_values::{FirstParts, FirstValues, TakeValues};
pub use self::notes::{JobNotes, JobState, Notes};
pub use self::offload::check_offload;
pub use self::report::{Change, GradientTraffic, StepReport, StepTimes};
pub use kolo_values::Undo;
