//! One worker's share of the model: flat parameters, the optimizer and the step.

pub(crate) mod assignment;
pub(crate) mod backup;
pub(crate) mod core;
mod elastic;
mod handle;
mod joining;
mod noise;
mod overflow;
pub(crate) mod report;
mod saved;
pub(crate) mod stepping;
mod straggler_observer;
mod tuning;
mod tuning_observer;
mod undo;
mod update;
pub(crate) mod weights;

pub use self::handle::Replica;
pub use self::report::{Change, StepReport};
