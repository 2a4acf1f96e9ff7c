//! Errors of recording and joining a timeline.

use std::io;
use std::path::{Path, PathBuf};

/// Error of recording or joining a timeline.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// A file of the timeline cannot be read or written.
    #[error("the timeline's file {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The timeline exists already, or parts of another one do.
    #[error("the timeline {} exists; remove it or give another name", path.display())]
    Exists { path: PathBuf },
    /// There are no parts to join.
    #[error("{} has no part of a timeline; record one with `kolo train --trace`", folder.display())]
    NoParts { folder: PathBuf },
    /// The writing thread has panicked; the panic message has been printed.
    #[error("the thread that writes the timeline has panicked; a part of the timeline is missing")]
    WriterPanicked,
    /// A line of a part is invalid.
    #[error("{}, line {line}: {problem}; remove the file to join the others", path.display())]
    Line {
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        problem: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Error::File { path, source }
    }
}
