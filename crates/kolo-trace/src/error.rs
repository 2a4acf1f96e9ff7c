//! Why a timeline cannot be recorded or joined.

use std::io;
use std::path::{Path, PathBuf};

/// Why a timeline cannot be recorded or joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the timeline cannot be read or written.
    #[error("the timeline's file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The timeline is there already, or parts of another one are.
    #[error("the timeline {} exists; remove it or give another name", path.display())]
    Exists {
        /// The file or folder.
        path: PathBuf,
    },
    /// There is nothing to join.
    #[error("{} has no part of a timeline; record one with `kolo train --trace`", folder.display())]
    NoParts {
        /// The folder in which parts were looked for.
        folder: PathBuf,
    },
    /// A line of a part cannot be understood.
    #[error("{}, line {line}: {problem}; remove the file to join the others", path.display())]
    Line {
        /// The part.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Error::File { path, source }
    }
}
