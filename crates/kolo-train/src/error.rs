//! What can go wrong with a run, by kind.

use std::path::{Path, PathBuf};

use kolo_claim::{Refusal, RefusalKind};
use kolo_data::{DataError, PrefetchError};
use kolo_ddp::optimizer::GroupError;
use kolo_ddp::table::ChoiceError;

use crate::shell::shell_quoted;
use crate::weights::error::WeightsError;

/// Why a run could not begin, go on, or end as it should.
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
    /// The configuration asks for what data-parallel training cannot give: an unknown optimizer, too few
    /// samples.
    #[error(transparent)]
    Refused(kolo_ddp::Error),
    /// The optimizer or a gradient transform is not there, or not set as it can be.
    #[error("{}", in_options(.0))]
    Choice(#[from] ChoiceError),
    /// A group of parameters selects none, or has settings that cannot be.
    #[error("{option} {error}")]
    Group {
        /// The option that has made the group.
        option: &'static str,
        /// What is wrong with it.
        error: GroupError,
    },
    /// A setting has a value that it cannot have.
    #[error("{option} {value}: {problem}")]
    Setting {
        /// The setting, as the command line spells it.
        option: &'static str,
        /// Its value.
        value: String,
        /// What the value must be.
        problem: String,
    },
    /// A setting is for other models than the run's.
    #[error("{option}: {model} has not got {lacks}; leave the option out, or choose another --model")]
    NotInModel {
        /// The setting, as the command line spells it.
        option: &'static str,
        /// The run's model.
        model: &'static str,
        /// What the setting is about.
        lacks: &'static str,
    },
    /// The images are smaller than the model can take.
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
        /// What is named.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// The names that exist, separated by commas.
        known: String,
    },
    /// A configuration file cannot be read, or is none.
    #[error("{}: {problem}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What the operating system or the TOML parser says.
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
    /// The folder of a new run holds one that has not come to a checkpoint.
    #[error(
        "the run folder {} holds a run that has not written a checkpoint, so it cannot be continued; remove it if \
         that run is over, or choose another --out", path.display()
    )]
    NothingToResume {
        /// The folder.
        path: PathBuf,
    },
    /// The folder that is to hold the run holds something else.
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
        /// The first setting that differs.
        setting: String,
        /// Its value there.
        there: String,
        /// Its value in this program.
        here: String,
    },
    /// What a run has come to cannot be kept.
    #[error("the run has no folder to write a checkpoint to")]
    NoFolder,
    /// The folder of a run that is to be continued does not exist.
    #[error("there is no run folder {}", path.display())]
    FolderMissing {
        /// The folder.
        path: PathBuf,
    },
    /// The run folder has vanished while the run went on.
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
        /// The folder of all runs.
        runs: PathBuf,
    },
    /// A part of a run folder was given in place of the folder itself.
    #[error(
        "{} is in the run folder {}; give that one, which goes on from its newest good checkpoint (to go on from \
         an earlier one, move the later ones away)", path.display(), shell_quoted(run)
    )]
    WithinRun {
        /// What was given.
        path: PathBuf,
        /// The run folder around it.
        run: PathBuf,
    },
    /// A run is to be continued, but it has left no good checkpoint.
    #[error("{} holds no checkpoint to continue from; start a new run", folder.display())]
    NoCheckpoint {
        /// The folder of its checkpoints.
        folder: PathBuf,
    },
    /// A run is to be continued with other samples than those of its checkpoint, or in another order.
    #[error(
        "{} was written with {setting} = {there}, and this run has {here}: it would train on some samples twice and \
         miss others; bring that back as it was, or go on all the same with --accept-changed-data", checkpoint.display()
    )]
    OtherSamples {
        /// The checkpoint.
        checkpoint: PathBuf,
        /// The first thing that differs: a setting of the recipe, or a part of the data.
        setting: String,
        /// What it was.
        there: String,
        /// What it is.
        here: String,
    },
    /// A file of the run folder cannot be written or read.
    #[error("{}: {source}{}", path.display(), kolo_ddp::checkpoint::remedy(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The last checkpoint could not be written.
    #[error("the last checkpoint was not written, everything else was: {0}")]
    CheckpointLost(Box<Error>),
    /// Rank 0 could not write the end of the run, in its own words.
    #[error("{0}")]
    Unwritten(String),
    /// A record of the run cannot be put into words.
    #[error("cannot write {what}: {problem}")]
    Encode {
        /// What was to be written.
        what: &'static str,
        /// What the encoder says.
        problem: String,
    },
    /// The loss, the gradient or what an update has made of the parameters is not finite any more.
    #[error("{0} (--lr, --clip-norm)")]
    Diverged(#[source] kolo_ddp::Error),
    /// The device cannot compute in the type that the recipe asks for.
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
        /// Their indices in the training data.
        samples: String,
        /// What failed.
        source: PrefetchError,
    },
    /// There were fewer batches than the epoch has steps.
    #[error("the data ended before the epoch did")]
    DataEnded,
    /// Weights could not be exported, or loaded from a file.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The run cannot be told when it is to end, or when a file is too large.
    #[error("cannot catch a signal: {0}")]
    Signal(std::io::Error),
    /// The run has ended before its last step.
    #[error(
        "{}: the run has ended after step {step} of {total}; {kept}",
        too_few.as_deref().unwrap_or("the workers have been asked to end")
    )]
    EndedEarly {
        /// Why it could not go on with the workers that were left; `None` where it was asked to end.
        too_few: Option<String>,
        /// Steps done.
        step: u64,
        /// Steps of the whole run.
        total: u64,
        /// What has become of the work.
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
    /// Whether the run was asked for in a way in which it cannot be: nothing has gone wrong in it.
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

/// Who writes in this one's place, and what to do.
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

/// What is wrong with a setting of a table's entry, in the words of the command line.
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
