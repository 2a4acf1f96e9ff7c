//! Why somebody may not write a folder.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::claim::Claim;

/// Why somebody may not write a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else may write.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The folder is not there.
    #[error("the folder {} is gone; bring it back", folder.display())]
    Gone {
        /// The folder.
        folder: PathBuf,
    },
    /// A file cannot be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// Others have claimed every term that was tried.
    #[error("{}: other processes take each claim first", folder.display())]
    TermsTaken {
        /// The folder.
        folder: PathBuf,
    },
}

/// Somebody else may write a folder, so this process may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{} {}", folder.display(), in_words(*kind, by.as_ref()))]
pub struct Refusal {
    /// The folder.
    pub folder: PathBuf,
    /// Why this process may not.
    pub kind: RefusalKind,
    /// The other one's claim; `None` if it cannot be read.
    pub by: Option<Claim>,
}

/// Why a process may not write a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// Another process writes it.
    Taken,
    /// Another part of the same job has gone on without this one.
    OtherPart,
    /// Another job has taken it from this one.
    Fenced,
}

impl Error {
    pub(crate) fn refused(kind: RefusalKind, folder: &Path, by: Option<Claim>) -> Self {
        Error::Refused(Box::new(Refusal { folder: folder.to_owned(), kind, by }))
    }

    pub(crate) fn file(path: &Path, source: impl Into<std::io::Error>) -> Self {
        Error::File { path: path.to_owned(), source: source.into() }
    }
}

fn in_words(kind: RefusalKind, by: Option<&Claim>) -> String {
    let by = by.map_or("a process whose claim cannot be read".into(), Claim::to_string);
    match kind {
        RefusalKind::Taken => format!("is written by {by}"),
        RefusalKind::OtherPart => {
            format!("is written by another part of this job, which has gone on without this one: {by}")
        }
        RefusalKind::Fenced => format!("has been taken from this job by {by}"),
    }
}
