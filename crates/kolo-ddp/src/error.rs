//! What can go wrong in a data-parallel step.

use std::path::PathBuf;

/// An error of data-parallel training, named after the culprit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A collective failed; names the rank at fault.
    #[error(transparent)]
    Comm(#[from] kolo_comm::Error),
    /// The ranks hold different models.
    #[error("the model differs between ranks: {0}; all ranks must build it from the same configuration")]
    ModelsDiffer(String),
    /// A reduction has failed before and was reported then; its gradients are lost.
    #[error("training cannot go on: a reduction has failed before; start again from the last checkpoint")]
    Lost,
    /// A setting that cannot be.
    #[error("{0}")]
    Setting(String),
    /// The step has no samples, so there is no gradient.
    #[error("step {step} has no samples on any rank; is the data set empty?")]
    NoSamples {
        /// Number of the step, from 0.
        step: u64,
    },
    /// A rank did not do its shards.
    #[error("this rank holds {due} shards a step but finished {done} before `step` was called")]
    ShardsMissing {
        /// Shards of this rank.
        due: usize,
        /// Backward passes done.
        done: usize,
    },
    /// A file of a checkpoint cannot be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        problem: String,
    },
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl std::fmt::Display) -> Self {
        Error::File { path: path.into(), problem: problem.to_string() }
    }
}
