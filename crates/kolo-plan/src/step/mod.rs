//! Predicts a job's step on many workers from the step of one, the communication, stragglers and failures.

mod advice;
mod choices;
mod cut;
mod load;
mod load_table;
mod outlook;
mod predict;
mod profile;
pub mod table;
mod timeline;

pub use kolo_schedule::{Travel, WireCost};

pub use advice::{Advice, Keeps, Variant, WORTH, advise, best, largest_gain};
pub use choices::{Choices, Sync};
pub use cut::Caps;
pub use load::{Load, Pick};
pub use load_table::LoadTable;
pub use outlook::{Disturbances, FailureCosts, Outlook, not_worth_from, outlook};
pub use predict::{Prediction, predict};
pub use profile::{Bucket, MeasuredBucket, StepProfile};
pub use timeline::{Overlap, Timeline, timeline};
