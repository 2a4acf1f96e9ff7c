//! Errors of recipes and run folders.

use std::path::{Path, PathBuf};

use kolo_claim::{Refusal, RefusalKind};
use kolo_ddp::optimizer::GroupError;
use kolo_ddp::table::ChoiceError;

use crate::field_table::{NOTHING, OnResume};
use crate::shell::shell_quoted;

/// Reason that a recipe is invalid, or that a run folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// The configuration is impossible for data-parallel training, or no checkpoint can be read.
    #[error(transparent)]
    Refused(#[from] kolo_ddp::Error),
    /// The optimizer or a gradient transform does not exist, or has an invalid setting.
    #[error("{}", in_options(.0))]
    Choice(ChoiceError),
    /// The reduction does not exist, or has an invalid setting.
    #[error("{}", in_reduction(given, error))]
    Reduction {
        /// The reduction, as the command line spells it.
        given: String,
        error: ChoiceError,
    },
    /// A group of parameters selects none, or has invalid settings.
    #[error("{option} {error}")]
    Group { option: &'static str, error: GroupError },
    /// A setting has an invalid value.
    #[error("{option} {value}: {problem}")]
    Setting {
        /// The setting, as the command line spells it.
        option: &'static str,
        value: String,
        problem: String,
    },
    /// A setting names something that does not exist.
    #[error("unknown {what} `{name}`; known are {known}")]
    Unknown {
        what: &'static str,
        name: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// A tokenizer cannot be read, or is damaged.
    #[error(transparent)]
    Data(#[from] kolo_data::DataError),
    /// A configuration file cannot be read, or is invalid.
    #[error("{}: {problem}", path.display())]
    Config { path: PathBuf, problem: String },
    /// The format of a file cannot express its content.
    #[error("cannot write {what}: {problem}")]
    Encode { what: &'static str, problem: String },
    /// The folder of a new run exists already.
    #[error(
        "the run folder {0} exists; choose another --out, or continue it with --resume {1} (--resume-or-start \
         does either)", path.display(), shell_quoted(path)
    )]
    FolderTaken { path: PathBuf },
    /// The folder of a new run holds a run without a checkpoint.
    #[error(
        "the run folder {} holds a run that has not written a checkpoint, so it cannot be continued; begin it \
         again there with --resume-or-start, remove it if that run is over, or choose another --out", path.display()
    )]
    NothingToResume { path: PathBuf },
    /// The folder of a new run holds a run that has just begun.
    #[error(
        "another process trains in the run folder {}, and has not written a checkpoint yet; choose another --out",
        path.display()
    )]
    FolderInUse { path: PathBuf },
    /// The run folder holds something else.
    #[error("the folder {} is not that of a run, and not empty; choose another", path.display())]
    NotARun { path: PathBuf },
    /// The folder is of a run with other settings.
    #[error("the run in {} began with {setting} = {there}, not {here}; {}", path.display(), other_recipe(path, setting, there, here, *on_resume))]
    OtherRecipe { path: PathBuf, setting: String, there: String, here: String, on_resume: OnResume },
    /// The place of the run folder is taken by a file, a link to nothing, or a device.
    #[error("{} is not a folder, and a run needs one; choose another --out", path.display())]
    NoFolder { path: PathBuf },
    /// The data of a run to continue are not where they were.
    #[error("{source}; if the data have moved, change `data` in {}", config.display())]
    DataOfRun { config: PathBuf, source: Box<kolo_data::DataError> },
    /// The folder is not that of a run.
    #[error("{} is no run folder: it has no config.toml; give the folder that a run was trained with", path.display())]
    NoConfig { path: PathBuf },
    /// The folder of the run to continue does not exist.
    #[error("there is no run folder {}", path.display())]
    FolderMissing { path: PathBuf },
    /// The run folder cannot be made.
    #[error("the run folder {} cannot be made ({}: {cause}); choose another --out", path.display(), at.display())]
    NotMade { path: PathBuf, at: PathBuf, cause: std::io::Error },
    /// The run folder vanished during the run.
    #[error("{}: the run folder is gone; bring it back", path.display())]
    FolderGone { path: PathBuf },
    /// Another process writes the run folder, or has taken it from this one.
    #[error("{}", refused(.0))]
    NotTheWriter(Box<Refusal>),
    /// The run folder cannot be claimed.
    #[error(transparent)]
    Claim(kolo_claim::Error),
    /// Other runs have taken every number that was tried for a new run folder.
    #[error("{}: other runs took every number first; give --out", runs.display())]
    NumbersTaken { runs: PathBuf },
    /// The path is inside a run folder, not the run folder itself.
    #[error(
        "{} is in the run folder {}; give that one, and the run continues from its newest good checkpoint (to continue from \
         an earlier one, move the later ones away)", path.display(), shell_quoted(run)
    )]
    WithinRun { path: PathBuf, run: PathBuf },
    /// The run kept no best checkpoint.
    #[error(
        "{} holds no best checkpoint, because it was trained without --best-metric; leave out --best for its newest one",
        folder.display()
    )]
    NoBestCheckpoint { folder: PathBuf },
    /// The run to continue has no good checkpoint.
    #[error("{} holds no checkpoint to continue from; start a new run", folder.display())]
    NoCheckpoint { folder: PathBuf },
    /// The run folder lacks the tokenizer of its weights.
    #[error(
        "there is no file {}, by which the run's weights know the text; put a copy there, as the run's exports have",
        path.display()
    )]
    TokenizerMissing { path: PathBuf },
    /// The run folder has another tokenizer than that of its weights.
    #[error("{}: the run's weights of step {step} are for {}", path.display(), if *is_bytes {
        "bytes; remove the file"
    } else {
        "another tokenizer; put a copy of that there, as the run's exports have"
    })]
    OtherTokenizer {
        path: PathBuf,
        step: u64,
        /// True if the weights are for bytes.
        is_bytes: bool,
    },
    /// The setting of the tokenizer has changed since the run began, and its tokenizer has not.
    #[error(
        "{}: `tokenizer` is {here}, and the run began with {there}, by which its weights know the text; restore the \
         old value, or start a new run", path.display()
    )]
    TokenizerSetting { path: PathBuf, there: String, here: String },
    /// A file of the run folder cannot be written or read.
    #[error("{}: {source}{}", path.display(), kolo_ddp::checkpoint::remedy(.source))]
    File { path: PathBuf, source: std::io::Error },
}

impl From<ChoiceError> for Error {
    fn from(error: ChoiceError) -> Self {
        Error::Choice(error)
    }
}

impl Error {
    /// Returns true if the user's input is at fault.
    pub fn is_input(&self) -> bool {
        use Error::*;
        match self {
            NotTheWriter(refusal) => refusal.kind == RefusalKind::Taken,
            Encode { .. } | FolderGone { .. } | Claim(_) | NumbersTaken { .. } | File { .. } => false,
            _ => true,
        }
    }

    /// Makes the error of a setting, spelled as on the command line, with an invalid value.
    pub fn setting(option: &'static str, value: impl ToString, problem: impl Into<String>) -> Self {
        Error::Setting { option, value: value.to_string(), problem: problem.into() }
    }

    /// Makes the error of a name that does not exist, which lists the known ones.
    pub fn unknown(what: &'static str, name: &str, known: impl IntoIterator<Item = &'static str>) -> Self {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        Error::Unknown { what, name: name.into(), known }
    }

    /// Makes the error of a content that the format of its file cannot express.
    pub fn encode(what: &'static str, problem: impl ToString) -> Self {
        Error::Encode { what, problem: problem.to_string() }
    }

    /// Makes the error of a file that cannot be written or read.
    pub fn file(path: &Path, source: std::io::Error) -> Self {
        Error::File { path: path.to_owned(), source }
    }
}

/// Describes the process that writes instead of this one, and a remedy.
fn refused(refusal: &Refusal) -> String {
    let folder = shell_quoted(&refusal.folder);
    match refusal.kind {
        RefusalKind::Taken => {
            format!(
                "{refusal}; wait until it has ended, or take the folder from it (--take-over, together with --resume or \
                 --resume-or-start)"
            )
        }
        _ => format!(
            "{refusal}; this one writes nothing there any more; `kolo train --resume {folder}` continues when the \
             other has ended"
        ),
    }
}

/// Describes what the user may do about a run with another value of a setting.
fn other_recipe(path: &Path, setting: &str, there: &str, here: &str, on_resume: OnResume) -> String {
    let folder = shell_quoted(path);
    let keep = if there == NOTHING { "leave it out".into() } else { format!("give {there}") };
    let with = if here == NOTHING { "without it".into() } else { format!("with {here}") };
    let longer = match (there.parse::<u64>(), here.parse::<u64>()) {
        (Ok(there), Ok(here)) => here > there,
        _ => false,
    };
    match (setting, on_resume) {
        ("epochs" | "steps", _) if longer => format!(
            "`kolo train --resume {folder} --{setting} {here}` makes it longer; or {keep} to continue it as it is, or choose \
             another folder for a new run"
        ),
        (_, OnResume::Refused | OnResume::Samples | OnResume::Unused) => {
            format!("a run keeps that value: {keep} to continue it, or choose another folder for a new run")
        }
        _ => format!(
            "{keep} to continue it as it is, change {setting} in its config.toml to continue it {with}, or choose another \
             folder for a new run"
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
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            format!("{}: {entry} has no such setting; it has {known}", option(setting))
        }
        unknown => unknown.to_string(),
    }
}

/// Describes an invalid setting of `--reduction`, which holds the settings in its value.
fn in_reduction(given: &str, error: &ChoiceError) -> String {
    match error {
        ChoiceError::NotAllowed { setting, .. } => {
            format!("--reduction {given}: {} must be {}", setting.name, setting.allowed)
        }
        ChoiceError::Rounded { setting, value, .. } => format!(
            "--reduction {given}: {} is {} in single precision; it must be {}",
            setting.name,
            value.in_f32(),
            setting.allowed
        ),
        ChoiceError::NoSetting { .. } => format!("--reduction {given}: {error}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::{Recipe, RunFolder};

    #[test]
    fn a_file_and_a_folder_without_a_run_are_named_so() {
        let place = tempfile::tempdir().unwrap();
        let (file, empty) = (place.path().join("file"), place.path().join("empty"));
        fs::write(&file, "x").unwrap();
        fs::create_dir(&empty).unwrap();
        let config = Recipe::default();
        for made in [
            RunFolder::create(file.clone(), &config),
            RunFolder::claim(file.clone(), &config, "job"),
            RunFolder::create_or_continue(file.clone(), &config, None),
        ] {
            let words =
                format!("{} is not a folder, and a run needs one; choose another --out", file.display());
            assert_eq!(made.unwrap_err().to_string(), words);
        }
        for path in [&file, &empty] {
            let error = RunFolder::at(path.clone()).config().unwrap_err();
            let words = format!("{} is no run folder: it has no config.toml; give the", path.display());
            assert!(error.is_input() && error.to_string().starts_with(&words), "{error}");
        }
        let error = RunFolder::at(place.path().join("nowhere")).config().unwrap_err();
        assert!(error.to_string().starts_with("there is no run folder "), "{error}");
    }

    #[test]
    fn data_that_have_moved_are_looked_for_where_the_configuration_says() {
        let run = std::path::Path::new("runs/a");
        for data in ["folder:/no/such", "cifar10:/no/such", "csv:/no/such"] {
            let recipe = Recipe { data: data.into(), ..Recipe::default() };
            let told = |run| recipe.open_data_of(run).err().unwrap().to_string();
            let plain = told(None);
            assert!(plain.contains("/no/such; "), "{plain}");
            let end = "; if the data have moved, change `data` in runs/a/config.toml";
            assert_eq!(told(Some(run)), plain + end);
        }
        let recipe = Recipe { data: "cifar11".into(), ..Recipe::default() };
        assert!(!recipe.open_data_of(Some(run)).err().unwrap().to_string().contains("have moved"));
    }

    #[test]
    fn another_setting_is_refused_with_what_the_user_may_do() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a run");
        let folder =
            RunFolder::create(path.clone(), &Recipe { steps: Some(9), ..Recipe::default() }).unwrap();
        fs::create_dir_all(folder.checkpoints().join("step-00000001")).unwrap();
        let usual = Recipe { steps: Some(9), ..Recipe::default() };
        for (config, words) in [
            (
                Recipe { epochs: 12, ..usual.clone() },
                "epochs = 8, not 12; `kolo train --resume 'PATH' --epochs 12` makes it",
            ),
            (
                Recipe { steps: Some(20), ..usual.clone() },
                "steps = 9, not 20; `kolo train --resume 'PATH' --steps 20` makes",
            ),
            (
                Recipe { steps: None, ..usual.clone() },
                "change steps in its config.toml to continue it without it, or choose",
            ),
            (
                Recipe { epochs: 3, ..usual.clone() },
                "epochs = 8, not 3; give 8 to continue it as it is, change epochs",
            ),
            (
                Recipe { dropout: 0.5, ..usual.clone() },
                "change dropout in its config.toml to continue it with 0.5, or",
            ),
            (
                Recipe { seed: 1, ..usual.clone() },
                "seed = 0, not 1; a run keeps that value: give 0 to continue it,",
            ),
            (
                Recipe { ema: Some(0.9), ..usual.clone() },
                "ema = nothing, not 0.9; a run keeps that value: leave it out to",
            ),
        ] {
            let error = RunFolder::create_or_continue(path.clone(), &config, None).unwrap_err();
            let words = words.replace("PATH", &path.display().to_string());
            assert!(error.is_input() && error.to_string().contains(&words), "{error}");
        }
    }
}
