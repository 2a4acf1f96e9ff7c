//! Errors of reading a run folder.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a run folder cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// There is no such folder.
    #[error("no run folder {}", folder.display())]
    NoFolder { folder: PathBuf },
    /// The folder does not belong to a run.
    #[error(
        "{} is no run folder: it has no config.toml; give a folder that `kolo train` has written",
        folder.display()
    )]
    NoRun { folder: PathBuf },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A line of a file does not have the form that `kolo train` writes.
    #[error(
        "{} line {line}: {problem}; remove or mend that line, or take the file from a copy of the run",
        path.display()
    )]
    Line {
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        problem: String,
    },
    /// A file does not have the form that `kolo train` writes.
    #[error("{}: {problem}; take the file from a copy of the run", path.display())]
    Content { path: PathBuf, problem: String },
}

impl Error {
    pub(crate) fn line(path: &Path, line: usize, problem: impl ToString) -> Self {
        Error::Line { path: path.to_owned(), line, problem: problem.to_string() }
    }

    pub(crate) fn content(path: &Path, problem: impl ToString) -> Self {
        Error::Content { path: path.to_owned(), problem: problem.to_string() }
    }
}
