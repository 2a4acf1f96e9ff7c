//! Predicts a job's step on many workers from the step of one, the communication, stragglers and failures.

mod advice;
mod choices;
mod cut;
mod load_table;
mod outlook;
mod predict;
mod profile;
mod reduction;
mod timeline;

pub use advice::{Advice, Keeps, Variant, WORTH, advise, best};
pub use choices::{Choices, Sync};
pub use cut::Caps;
pub use load_table::LoadTable;
pub use outlook::{Disturbances, FailureCosts, Outlook, not_worth_from, outlook};
pub use predict::{Prediction, predict};
pub use profile::{Bucket, MeasuredBucket, StepProfile};
pub use reduction::{BytesPerElement, Load, Pick, REDUCTIONS, ReductionKind, Travel};
pub use timeline::{Overlap, Timeline, timeline};
