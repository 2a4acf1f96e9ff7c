//! What can be wrong with a run folder.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run folder cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such folder.
    #[error("no run folder {}", folder.display())]
    NoFolder {
        /// Where it should be.
        folder: PathBuf,
    },
    /// A folder is none of a run.
    #[error(
        "{} is no run folder: it has no config.toml; give a folder that `kolo train` has written",
        folder.display()
    )]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A line of a file is not as `kolo train` writes it.
    #[error(
        "{} line {line}: {problem}; remove or mend that line, or take the file from a copy of the run",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A file is not as `kolo train` writes it.
    #[error("{}: {problem}; take the file from a copy of the run", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl Error {
    pub(crate) fn line(path: &Path, line: usize, problem: impl ToString) -> Self {
        Error::Line { path: path.to_owned(), line, problem: problem.to_string() }
    }

    pub(crate) fn content(path: &Path, problem: impl ToString) -> Self {
        Error::Content { path: path.to_owned(), problem: problem.to_string() }
    }
}
