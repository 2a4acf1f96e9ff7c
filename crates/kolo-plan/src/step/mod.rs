//! The step of a job on so many workers: the computation of one, beside the communication of all; and what
//! the slowest and the dead make of it.

mod outlook;
mod predict;
mod profile;
mod timeline;

pub use outlook::{Disturbances, FailureCosts, Outlook, not_worth_from, outlook};
pub use predict::{Prediction, predict};
pub use profile::{Bucket, StepProfile};
pub use timeline::{Timeline, timeline};
