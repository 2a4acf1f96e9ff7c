//! Warnings to the user; training continues.
//!
//! A warning is in the report of the step to which it belongs ([`StepReport::warnings`](crate::StepReport)),
//! for a program that acts on it or displays it. In addition it is logged once when it arises: by the
//! program's logger, or, if there is none, on stderr, so that it is visible without the report.

use std::path::PathBuf;

use kolo_comm::Rank;

use kolo_straggler::Straggler;

/// A warning to the user; training continues. A rank has those that it should display: rank 0 has those that
/// concern all ranks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Warning {
    /// No shard of a step has used a parameter. Logged once for each parameter.
    #[error(
        "parameter `{parameter}` had no gradient in step {step}: it stays as it is, without weight decay, in every step that \
         does not use it; take it out of the model, or mark it as not trained, if that is meant"
    )]
    UnusedParameter {
        /// The first step without use of it, from 0.
        step: u64,
        parameter: String,
    },
    /// A newer checkpoint than the one from which the job continues cannot be used.
    #[error("{problem}; this run continues from {}", path.display())]
    CheckpointPassedOver { problem: String, path: PathBuf },
    /// A rank delays the others.
    #[error("{}", .0.reason)]
    Straggler(Straggler),
    /// Ranks have other shards from the next step on.
    #[error("{reason}")]
    SharesMoved { reason: String },
    /// Shards were to move from a rank that delays the others, and cannot.
    #[error("shards stay where they are: {reason}")]
    SharesStay { reason: String },
    /// The reduction's state of some shards has died with the ranks that held it: those shards begin anew,
    /// and the weights are not those of an undisturbed job.
    #[error(
        "the state that the reduction `{reduction}` kept for shards {shards:?} is lost: no living worker has a copy; they begin with nothing, \
         and the weights are not those of an undisturbed job (`Config::backup_every` copies it)"
    )]
    ShardStateLost {
        reduction: String,
        /// The shards, from 0.
        shards: Vec<usize>,
    },
    /// The optimizers of islands have died with the ranks that held them: all islands continue from the
    /// job's weights with optimizers that begin anew, and the weights are not those of an undisturbed job.
    #[error(
        "the optimizers of islands {islands:?} are lost: no living worker has a copy of all of them; they begin without state, and the \
         weights are not those of an undisturbed job (`Config::backup_every` copies them)"
    )]
    IslandStateLost {
        /// The islands, from 0.
        islands: Vec<usize>,
    },
    /// A rank computes on another kind of processor than rank 0.
    #[error(
        "rank 0 computes on {first}, {rank} on {other}: Burn's own kernels, such as its products of \
         matrices, may round differently there, and the bits then depend on which rank has which shards; \
         if your model calls them, take processors of one kind where bits count (docs/exact.md)"
    )]
    ProcessorsDiffer {
        /// Rank 0's: the processor's name and its vector instructions.
        first: String,
        rank: Rank,
        /// That rank's.
        other: String,
    },
    /// State of an optimizer that should be in a file is in memory.
    #[error("{0}")]
    StateInMemory(String),
    /// A warning of the tensor library's binding about the model.
    #[error("{0}")]
    Model(String),
}

/// The warnings of one rank that are in no report yet.
#[derive(Debug, Default)]
pub struct Warnings(Vec<Warning>);

impl Warnings {
    /// Logs a warning, and keeps it for the next report.
    pub(crate) fn add(&mut self, warning: Warning) {
        kolo_checkpoint::tell(&warning);
        self.0.push(warning);
    }

    /// Takes the warnings that are in no report yet.
    pub fn take(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.0)
    }
}
