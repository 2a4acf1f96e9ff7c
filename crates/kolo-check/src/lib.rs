//! Checks of a training job before it runs.
//!
//! Each of the [`probes`] measures one property on every rank; their results form [`Facts`], which are
//! values. [`CHECKS`] are pure functions of the facts of all ranks and of the job's [`Settings`]. A check
//! returns a [`Finding`] with the problem, its consequence and a remedy, or `None`. `kolo check` gathers
//! the facts on the workers that would run the job, and prints the findings. This crate uses no tensor
//! library: its caller measures a step of the model and passes it as a [`TrialStep`].

mod facts;
pub mod findings;
pub mod probes;
mod repeated_trials;
mod report;
mod settings;
mod verdict;

#[cfg(test)]
mod example;

pub use facts::{Facts, RankFacts, Trial, TrialStep};
pub use findings::{CHECKS, Check, Finding, Severity, findings};
pub use repeated_trials::{fastest_of, may_be_disturbed};
pub use report::{Report, text};
pub use settings::{
    BatchSettings, CheckpointSettings, Exchange, Normalization, RateSettings, Schedule, Settings, Work,
};
pub use verdict::Verdict;
