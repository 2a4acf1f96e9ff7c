//! Errors of a run, by kind.

use std::fmt;
use std::path::PathBuf;

use kolo_comm::schedule::words::counted;
use kolo_data::{DataError, PrefetchError};
use kolo_ddp::binding::BindingError;
use kolo_elastic::WRONG_INPUT;

/// Beginning of the message of a run whose last checkpoint could not be written.
pub const CHECKPOINT_LOST: &str = "the last checkpoint could not be written";

/// Reason that a run could not begin, continue, or end regularly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// A training step, a collective or a checkpoint failed; names the rank, the parameter or the file.
    #[error(transparent)]
    Training(kolo_ddp::Error),
    /// The timeline cannot be written.
    #[error("--trace: {0}")]
    Timeline(#[from] kolo_trace::Error),
    /// The data set could not be opened.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The configuration is impossible for data-parallel training: an unknown optimizer, too few samples.
    #[error(transparent)]
    Refused(kolo_ddp::Error),
    /// The recipe is invalid, or the run folder cannot be used.
    #[error(transparent)]
    Recipe(#[from] kolo_recipe::Error),
    /// The run has no folder to save its work in.
    #[error("the run has no folder to write a checkpoint to")]
    NoFolder,
    /// The run to continue has other samples than its checkpoint, or another order.
    #[error(
        "{} was written with {setting} = {there}, and this run has {here}: {change}", checkpoint.display()
    )]
    OtherSamples { checkpoint: PathBuf, setting: String, there: String, here: String, change: SampleChange },
    /// The checkpoint to continue from holds what another value of a setting has decided.
    #[error(
        "{} was written with {setting} = {there}, and config.toml has {here}: {problem}; restore the old value, or \
         start a new run", checkpoint.display()
    )]
    OtherState { checkpoint: PathBuf, setting: String, there: String, here: String, problem: String },
    /// The run to continue was begun with parts of its program that are not here.
    #[error(
        "the run began with {there} of its program's own, and this program brings {here}; continue it with that \
         program"
    )]
    OtherParts { there: String, here: String },
    /// The program's schedule returned an impossible learning rate.
    #[error(
        "the program's schedule gives step {step} (from 0) the learning rate {rate}; return a finite number of at \
         least 0"
    )]
    Schedule {
        /// The step, from 0.
        step: u64,
        rate: f64,
    },
    /// Rank 0 died during a learning-rate range test.
    #[error("rank 0 died, and with it the losses of the range test; run it again")]
    RangeTestCut,
    /// The program's tally has another number of values than there are metrics.
    #[error(
        "the tally of the evaluation has {} for {}; return one for each",
        counted(values, "value"),
        counted(metrics, "metric")
    )]
    Tally { metrics: usize, values: usize },
    /// The weights to begin with are not finite.
    #[error("{}: `{parameter}` is not finite, so training cannot begin with it; give another file (--init)", file.display())]
    InitNotFinite { file: PathBuf, parameter: String },
    /// The checkpoint to continue from is after the last step of the run.
    #[error(
        "{} is after step {step}, beyond the end of the run, which has {} with {setting}; raise that in \
         config.toml, or move the later checkpoints away", checkpoint.display(), counted(total, "step")
    )]
    BeyondEnd {
        checkpoint: PathBuf,
        /// Steps done at the checkpoint.
        step: u64,
        total: u64,
        setting: String,
    },
    /// The last checkpoint could not be written.
    #[error("{CHECKPOINT_LOST}: {0}")]
    CheckpointLost(Box<Error>),
    /// Rank 0 could not write the end of the run; contains its message.
    #[error("{0}")]
    Unwritten(String),
    /// The loss, the gradient or an updated parameter is not finite any more.
    #[error("{0} (--lr, --clip-norm)")]
    Diverged(#[source] kolo_ddp::Error),
    /// The device cannot compute in the type of the recipe.
    #[error("{0} (--precision)")]
    Precision(#[source] BindingError),
    /// Batches could not be prepared.
    #[error(transparent)]
    Prefetch(#[from] PrefetchError),
    /// The samples of a shard could not be prepared.
    #[error(
        "{source}; it prepared the samples of shard {shard} in step {step} of epoch {epoch} (steps counted from 0): \
         {samples}"
    )]
    Samples {
        /// The epoch, from 1.
        epoch: usize,
        /// The step of the epoch, from 0.
        step: usize,
        /// The shard, from 0.
        shard: usize,
        samples: String,
        source: PrefetchError,
    },
    /// There were fewer batches than the epoch has steps.
    #[error("the data ended before the epoch did")]
    DataEnded,
    /// The weights to begin with could not be loaded.
    #[error("{source}")]
    Weights {
        source: BindingError,
        /// True if the user's input is at fault.
        is_input: bool,
    },
    /// Signals cannot be caught, which end a run or report a file that is too large.
    #[error("cannot catch a signal: {0}")]
    Signal(std::io::Error),
    /// The run ended before its last step.
    #[error(
        "{}: the run has ended after step {step} of {total}; {kept}",
        early_reason(too_few.as_deref(), *max_hours)
    )]
    EndedEarly {
        /// Reason that the remaining workers could not continue; `None` if the run was signaled to end, or its
        /// time was over.
        too_few: Option<String>,
        /// The limit of time that ended the run, in hours.
        max_hours: Option<f64>,
        /// Steps done.
        step: u64,
        total: u64,
        /// Sentence about the saved or lost work.
        kept: String,
        cause: Option<Box<Error>>,
    },
}

/// Change of the samples since a checkpoint. Its text says what follows, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleChange {
    /// A setting or the number of training samples, which decide the order of the samples.
    Order,
    /// The content of the training samples, whose number is the same.
    Content,
    /// Samples for tests or validation.
    Judging,
}

impl fmt::Display for SampleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SampleChange::Order => {
                "it would train on some samples twice and miss others; restore the old value, or continue anyway with \
                 --accept-changed-data"
            }
            SampleChange::Content => {
                "their number is the same, and their content is not, so the rest of the run would learn from other \
                 samples; restore the data, or continue with those of now by --accept-changed-data"
            }
            SampleChange::Judging => {
                "no step learns from them, but later scores would be of other samples than earlier ones; restore the \
                 data, or continue with --accept-changed-data, which judges by those of now"
            }
        })
    }
}

impl From<kolo_ddp::Error> for Error {
    fn from(error: kolo_ddp::Error) -> Self {
        if error.is_divergence() { Error::Diverged(error) } else { Error::Training(error) }
    }
}

impl From<kolo_ddp::CheckpointError> for Error {
    fn from(error: kolo_ddp::CheckpointError) -> Self {
        kolo_ddp::Error::from(error).into()
    }
}

impl From<kolo_comm::Error> for Error {
    fn from(error: kolo_comm::Error) -> Self {
        Error::Training(error.into())
    }
}

/// Returns the reason for which a run has ended early.
fn early_reason(too_few: Option<&str>, max_hours: Option<f64>) -> String {
    match (too_few, max_hours) {
        (Some(too_few), _) => too_few.into(),
        (None, Some(hours)) => format!("the time limit of {} (--max-hours) is over", counted(hours, "hour")),
        (None, None) => "the workers have been asked to end".into(),
    }
}

impl Error {
    /// Returns true if the user's input is at fault: nothing went wrong during the run.
    pub fn is_input(&self) -> bool {
        match self {
            Error::Recipe(error) => error.is_input(),
            Error::Training(error) => error.is_input(),
            Error::Weights { is_input, .. } => *is_input,
            Error::Data(_) | Error::Refused(_) | Error::OtherSamples { .. } => true,
            Error::OtherParts { .. } | Error::Schedule { .. } => true,
            Error::OtherState { .. } | Error::BeyondEnd { .. } | Error::InitNotFinite { .. } => true,
            _ => false,
        }
    }

    /// Returns true if the run has ended because another worker's input is wrong, and its work is saved.
    pub fn follows_wrong_input(&self) -> bool {
        matches!(self, Error::EndedEarly { too_few: Some(why), cause: None, .. } if why.contains(WRONG_INPUT))
    }

    pub(crate) fn setting(option: &'static str, value: impl ToString, problem: impl Into<String>) -> Self {
        kolo_recipe::Error::setting(option, value, problem).into()
    }
}
