//! What can go wrong with a checkpoint.

use std::io::ErrorKind;
use std::path::PathBuf;

use rustix::process::{Resource, getrlimit};

/// An error of a checkpoint, which names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of a checkpoint holds elements that the model does not have.
    #[error("a checkpoint's part holds elements {start}..{end} where the model has {len}")]
    PartTooLong {
        /// Its first element of flat memory.
        start: usize,
        /// The one after its last.
        end: usize,
        /// Elements of the model.
        len: usize,
    },
    /// A part of a checkpoint is to go into a file that is not named after its set.
    #[error(
        "a checkpoint's part cannot go into `{file}`; call it as {whole}, with `-` and more before the dot"
    )]
    PartFile {
        /// The file that was asked for.
        file: String,
        /// The file that holds the whole set.
        whole: &'static str,
    },
    /// A writer of checkpoints was to keep none.
    #[error("0 checkpoints to keep: it must be at least 1")]
    KeepsNone,
    /// A checkpoint was to be taken of values that are not finite, for which the last good one might have been
    /// removed.
    #[error(
        "no checkpoint is taken after {step} steps, because `{tensor}` is not finite: training has diverged; lower the learning \
         rate or clip the gradient, and go on from the last checkpoint"
    )]
    SnapshotNotFinite {
        /// Steps done.
        step: u64,
        /// The first tensor that is not finite, as it would be called in its file.
        tensor: String,
    },
    /// A file of a checkpoint holds values that are not finite.
    #[error("{}: {} not finite, so nothing can be continued from it; use an older checkpoint", path.display(), are(tensors))]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensors that are not.
        tensors: Vec<String>,
    },
    /// Somebody else writes the folder now.
    #[error("{}: {source}", folder.display())]
    NotAllowed {
        /// The folder of the checkpoints.
        folder: PathBuf,
        /// What the writer's guard says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The thread that writes checkpoints has panicked.
    #[error("the thread that writes checkpoints panicked; this is a bug")]
    WriterPanicked,
    /// A file of a checkpoint cannot be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        problem: String,
    },
}

/// The names of tensors, the first few, and a verb.
fn are(tensors: &[String]) -> String {
    const MOST: usize = 4;
    let named: Vec<String> = tensors.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    match tensors.len() {
        1 => format!("{} is", named.concat()),
        len if len <= MOST => format!("{} are", named.join(", ")),
        len => format!("{} and {} more are", named.join(", "), len - MOST),
    }
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl std::fmt::Display) -> Self {
        Error::File { path: path.into(), problem: problem.to_string() }
    }

    /// A file that could not be written.
    pub(crate) fn not_written(path: impl Into<PathBuf>, cause: &std::io::Error) -> Self {
        Error::file(path, format_args!("{cause}{}", remedy(cause)))
    }
}

/// What follows an error of the operating system when something was written: what to do where the disk is
/// full, or a file larger than this process may make it, else nothing.
pub fn remedy(cause: &std::io::Error) -> String {
    match (cause.kind(), getrlimit(Resource::Fsize).current) {
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _) => "; make room there".into(),
        (ErrorKind::FileTooLarge, Some(limit)) => {
            format!("; this process may write {limit} bytes to a file: raise `ulimit -f`")
        }
        (ErrorKind::FileTooLarge, None) => "; this file system takes no file of that size".into(),
        _ => String::new(),
    }
}
