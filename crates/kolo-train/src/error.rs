//! Errors of a run, by kind.

use std::path::{Path, PathBuf};

use kolo_claim::{Refusal, RefusalKind};
use kolo_data::{DataError, PrefetchError};
use kolo_ddp::optimizer::GroupError;
use kolo_ddp::table::ChoiceError;

use crate::shell::shell_quoted;
use crate::weights::error::WeightsError;

/// Reason that a run could not begin, continue, or end regularly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// The optimizer or a gradient transform does not exist, or has an invalid setting.
    #[error("{}", in_options(.0))]
    Choice(#[from] ChoiceError),
    /// A group of parameters selects none, or has invalid settings.
    #[error("{option} {error}")]
    Group {
        /// Option that made the group.
        option: &'static str,
        /// Problem of the group.
        error: GroupError,
    },
    /// A setting has an invalid value.
    #[error("{option} {value}: {problem}")]
    Setting {
        /// The setting, as the command line spells it.
        option: &'static str,
        /// Its value.
        value: String,
        /// Requirement that the value violates.
        problem: String,
    },
    /// A setting is for other models than the run's.
    #[error("{option}: {model} has not got {lacks}; leave the option out, or choose another --model")]
    NotInModel {
        /// The setting, as the command line spells it.
        option: &'static str,
        /// The run's model.
        model: &'static str,
        /// Part of a model that the setting needs.
        lacks: &'static str,
    },
    /// The images are too small for the model.
    #[error(
        "{model} halves images until at least {smallest} × {smallest} pixels are one, and these have {height} × \
         {width}; choose larger images or another model"
    )]
    ImageTooSmall {
        /// The model.
        model: &'static str,
        /// The fewest rows and columns.
        smallest: usize,
        /// Rows of an image.
        height: usize,
        /// Columns of an image.
        width: usize,
    },
    /// A setting names something that does not exist.
    #[error("unknown {what} `{name}`; known are {known}")]
    Unknown {
        /// Kind of the name.
        what: &'static str,
        /// The given name.
        name: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// A configuration file cannot be read, or is invalid.
    #[error("{}: {problem}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Message of the operating system or the TOML parser.
        problem: String,
    },
    /// The folder of a new run exists already.
    #[error(
        "the run folder {0} exists; choose another --out, or continue it with --resume {1} (--resume-or-start \
         does either)", path.display(), shell_quoted(path)
    )]
    FolderTaken {
        /// The folder.
        path: PathBuf,
    },
    /// The folder of a new run holds a run without a checkpoint.
    #[error(
        "the run folder {} holds a run that has not written a checkpoint, so it cannot be continued; remove it if \
         that run is over, or choose another --out", path.display()
    )]
    NothingToResume {
        /// The folder.
        path: PathBuf,
    },
    /// The run folder holds something else.
    #[error("the folder {} is not that of a run, and not empty; choose another", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is of a run with other settings.
    #[error(
        "the run in {} was begun with {setting} = {there}, not {here}; choose another folder, or change its \
         config.toml if that is meant", path.display()
    )]
    OtherRecipe {
        /// The folder.
        path: PathBuf,
        /// First setting that differs.
        setting: String,
        /// Its value in the folder.
        there: String,
        /// Its value in this program.
        here: String,
    },
    /// The run has no folder to save its work in.
    #[error("the run has no folder to write a checkpoint to")]
    NoFolder,
    /// The folder of the run to continue does not exist.
    #[error("there is no run folder {}", path.display())]
    FolderMissing {
        /// The folder.
        path: PathBuf,
    },
    /// The run folder vanished during the run.
    #[error("{}: the run folder is gone; bring it back", path.display())]
    FolderGone {
        /// The folder.
        path: PathBuf,
    },
    /// Another process writes the run folder, or has taken it from this one.
    #[error("{}", refused(.0))]
    NotTheWriter(Box<Refusal>),
    /// The run folder cannot be claimed.
    #[error(transparent)]
    Claim(kolo_claim::Error),
    /// Other runs have taken every number that was tried for a new run folder.
    #[error("{}: other runs take each number first", runs.display())]
    NumbersTaken {
        /// Folder of all runs.
        runs: PathBuf,
    },
    /// The path is inside a run folder, not the run folder itself.
    #[error(
        "{} is in the run folder {}; give that one, which goes on from its newest good checkpoint (to go on from \
         an earlier one, move the later ones away)", path.display(), shell_quoted(run)
    )]
    WithinRun {
        /// The given path.
        path: PathBuf,
        /// The run folder around it.
        run: PathBuf,
    },
    /// The run kept no best checkpoint.
    #[error(
        "{} holds no best checkpoint, because it was trained without --best-metric; leave out --best for its newest one",
        folder.display()
    )]
    NoBestCheckpoint {
        /// The run folder.
        folder: PathBuf,
    },
    /// The run to continue has no good checkpoint.
    #[error("{} holds no checkpoint to continue from; start a new run", folder.display())]
    NoCheckpoint {
        /// Folder of its checkpoints.
        folder: PathBuf,
    },
    /// The run to continue has other samples than its checkpoint, or another order.
    #[error(
        "{} was written with {setting} = {there}, and this run has {here}: it would train on some samples twice and \
         miss others; bring that back as it was, or go on all the same with --accept-changed-data", checkpoint.display()
    )]
    OtherSamples {
        /// The checkpoint.
        checkpoint: PathBuf,
        /// First difference: a setting of the recipe, or a part of the data.
        setting: String,
        /// Its value in the checkpoint.
        there: String,
        /// Its value now.
        here: String,
    },
    /// A file of the run folder cannot be written or read.
    #[error("{}: {source}{}", path.display(), kolo_ddp::checkpoint::remedy(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The last checkpoint could not be written.
    #[error("the last checkpoint was not written, everything else was: {0}")]
    CheckpointLost(Box<Error>),
    /// Rank 0 could not write the end of the run; contains its message.
    #[error("{0}")]
    Unwritten(String),
    /// A record of the run cannot be encoded.
    #[error("cannot write {what}: {problem}")]
    Encode {
        /// Kind of the record.
        what: &'static str,
        /// Message of the encoder.
        problem: String,
    },
    /// The loss, the gradient or an updated parameter is not finite any more.
    #[error("{0} (--lr, --clip-norm)")]
    Diverged(#[source] kolo_ddp::Error),
    /// The device cannot compute in the type of the recipe.
    #[error("{0} (--precision)")]
    Precision(#[source] kolo_burn::Error),
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
        /// Indices of the samples in the training data.
        samples: String,
        /// The cause.
        source: PrefetchError,
    },
    /// There were fewer batches than the epoch has steps.
    #[error("the data ended before the epoch did")]
    DataEnded,
    /// Weights could not be exported, or loaded from a file.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Signals cannot be caught, which end a run or report a file that is too large.
    #[error("cannot catch a signal: {0}")]
    Signal(std::io::Error),
    /// The run ended before its last step.
    #[error(
        "{}: the run has ended after step {step} of {total}; {kept}",
        too_few.as_deref().unwrap_or("the workers have been asked to end")
    )]
    EndedEarly {
        /// Reason that the remaining workers could not continue; `None` if the run was signaled to end.
        too_few: Option<String>,
        /// Steps done.
        step: u64,
        /// Steps of the whole run.
        total: u64,
        /// Sentence about the saved or lost work.
        kept: String,
    },
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

impl Error {
    /// Returns true if the user's input is at fault: nothing went wrong during the run.
    pub fn is_input(&self) -> bool {
        use Error::*;
        matches!(
            self,
            NotTheWriter(refusal) if refusal.kind == RefusalKind::Taken
        ) || matches!(
            self,
            Data(_)
                | Refused(_)
                | Choice(_)
                | Group { .. }
                | Setting { .. }
                | Unknown { .. }
                | NotInModel { .. }
                | ImageTooSmall { .. }
                | Config { .. }
                | FolderTaken { .. }
                | NothingToResume { .. }
                | FolderMissing { .. }
                | WithinRun { .. }
                | NotARun { .. }
                | OtherRecipe { .. }
                | NoBestCheckpoint { .. }
                | NoCheckpoint { .. }
                | OtherSamples { .. }
                | Weights(_)
        )
    }

    pub(crate) fn setting(option: &'static str, value: impl ToString, problem: impl Into<String>) -> Self {
        Error::Setting { option, value: value.to_string(), problem: problem.into() }
    }

    pub(crate) fn unknown(
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        Error::Unknown { what, name: name.into(), known }
    }

    pub(crate) fn file(path: &Path, source: std::io::Error) -> Self {
        Error::File { path: path.to_owned(), source }
    }
}

impl From<kolo_comm::Error> for Error {
    fn from(error: kolo_comm::Error) -> Self {
        Error::Training(error.into())
    }
}

/// Describes the process that writes instead of this one, and a remedy.
fn refused(refusal: &Refusal) -> String {
    let folder = shell_quoted(&refusal.folder);
    match refusal.kind {
        RefusalKind::Taken => format!(
            "{refusal}; wait until it has ended, or take the folder from it: `kolo train --resume {folder} \
             --take-over`"
        ),
        _ => format!(
            "{refusal}; this one writes nothing there any more; `kolo train --resume {folder}` goes on when the \
             other has ended"
        ),
    }
}

/// Describes an invalid setting of a table's entry with the options of the command line.
fn in_options(error: &ChoiceError) -> String {
    let option = |name: &str| format!("--{}", name.replace('_', "-"));
    match error {
        ChoiceError::NotAllowed { setting, value, .. } => {
            format!("{} {value}: it must be {}", option(setting.name), setting.allowed)
        }
        ChoiceError::Rounded { setting, value, .. } => format!(
            "{} {value}: it is {} in single precision; it must be {}",
            option(setting.name),
            value.in_f32(),
            setting.allowed
        ),
        ChoiceError::NoSetting { entry, setting, known } => {
            let known: Vec<String> = known.iter().map(|setting| option(setting.name)).collect();
            format!("{}: {entry} has no such setting; it has {}", option(setting), known.join(", "))
        }
        unknown => unknown.to_string(),
    }
}
