//! Errors of checkpoints.

use std::fs::DirEntry;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// Error of a checkpoint, with the name of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// A part of a checkpoint holds elements that the model does not have.
    #[error("a part of the checkpoint has elements {start}..{end}, but the model has {len}")]
    PartTooLong {
        /// First element in flat memory.
        start: usize,
        end: usize,
        len: usize,
    },
    /// The file of a checkpoint's part is not named after its set.
    #[error(
        "a checkpoint cannot have a part named `{file}`; name it like {whole}, with `-` and more before the dot"
    )]
    PartFile { file: String, whole: &'static str },
    /// The number of checkpoints to keep is 0.
    #[error("0 checkpoints to keep: it must be at least 1")]
    KeepsNone,
    /// The values are not finite. Writing the checkpoint might have removed the last good one.
    #[error(
        "Kolo writes no checkpoint after {step} steps, because `{tensor}` is not finite: training has diverged; continue from an \
         earlier checkpoint, if there is one, and lower the learning rate or clip the gradient"
    )]
    SnapshotNotFinite {
        /// Steps done.
        step: u64,
        tensor: String,
    },
    /// A file of a checkpoint holds values that are not finite.
    #[error("{}: {} not finite, so no run can continue from it; use an older checkpoint", path.display(), are(tensors))]
    NotFinite { path: PathBuf, tensors: Vec<String> },
    /// A source has no values ([`Source`](crate::Source)): another worker, which held them, is gone.
    #[error("values of the checkpoint have not come from the worker that has them")]
    NoValues,
    /// Another process writes the folder now.
    #[error("{}: {source}", folder.display())]
    NotAllowed { folder: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    /// The thread that writes checkpoints panicked.
    #[error("the thread that writes checkpoints panicked; this is a bug")]
    WriterPanicked,
    /// A file of a checkpoint cannot be read or written.
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
}

/// Returns the names of the first few tensors, and a verb.
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

    pub(crate) fn not_written(path: impl Into<PathBuf>, cause: &std::io::Error) -> Self {
        let path: PathBuf = path.into();
        let is_full = matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let is_whole = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"step-");
        let inside = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let has_several = |folder: &Path| inside(folder).filter(is_whole).count() > 1;
        let fewer = match is_full && path.ancestors().skip(1).take(2).any(has_several) {
            true => ", or keep fewer checkpoints (--keep-checkpoints)",
            false => "",
        };
        Error::file(path, format_args!("{cause}{}{fewer}", remedy(cause)))
    }
}

/// Returns the remedy for a failed write, as a suffix of the error's message. It is empty unless the disk is
/// full or the file is larger than the process or the file system allows.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_with_older_checkpoints_may_keep_fewer() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join(".step-00000030.part/weights.safetensors");
        let told = |kind: ErrorKind| Error::not_written(&file, &kind.into()).to_string();
        for (step, is_told) in [(10, false), (20, true)] {
            std::fs::create_dir(crate::path(place.path(), step)).unwrap();
            let words = "; make room there, or keep fewer checkpoints (--keep-checkpoints)";
            for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
                assert_eq!(told(kind).ends_with(words), is_told, "{}", told(kind));
            }
        }
        assert!(!told(ErrorKind::PermissionDenied).contains("--keep-checkpoints"));
    }
}
