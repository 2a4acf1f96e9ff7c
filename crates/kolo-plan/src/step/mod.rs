//! The step of a job on so many workers: the computation of one, beside the communication of all.

mod predict;
mod profile;
mod timeline;

pub use predict::{Prediction, predict};
pub use profile::{Bucket, StepProfile};
pub use timeline::{Timeline, timeline};
