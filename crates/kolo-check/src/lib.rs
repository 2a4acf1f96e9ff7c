//! What is wrong with a training job before it runs.
//!
//! [`probes`] look at one thing each, on every rank, and give [`Facts`], which are values. [`CHECKS`] are
//! pure functions of the facts of all ranks and of the job's [`Settings`]: each gives a [`Finding`] with
//! what is so, why it matters, and what to do; or nothing. `kolo check` gathers the facts on the workers
//! that would run the job, and tells what is found. This crate never sees a tensor library: what a step of
//! the model takes is measured above, and comes in as a [`TrialStep`].

mod facts;
pub mod findings;
pub mod probes;
mod report;
mod settings;

#[cfg(test)]
mod example;

pub use facts::{Facts, RankFacts, Trial, TrialStep};
pub use findings::{CHECKS, Check, Finding, Severity, findings};
pub use report::{Report, text};
pub use settings::{
    BatchSettings, CheckpointSettings, Exchange, Normalisation, RateSettings, Schedule, Settings, Work,
};
