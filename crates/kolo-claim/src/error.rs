//! Reasons why a process may not write a folder.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::claim::Claim;

/// Reason why a process may not write a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// Another process may write the folder.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The folder does not exist.
    #[error("the folder {} is gone; bring it back", folder.display())]
    Gone { folder: PathBuf },
    /// A file cannot be written or read.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// Other processes have claimed every term that was tried.
    #[error("{}: other processes took every claim first; try again", folder.display())]
    TermsTaken { folder: PathBuf },
}

/// Refusal of a folder that another process may write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{} {}", folder.display(), description(*kind, by.as_ref()))]
#[allow(missing_docs, reason = "the messages name the fields")]
pub struct Refusal {
    pub folder: PathBuf,
    pub kind: RefusalKind,
    /// The other process's claim; `None` if it cannot be read.
    pub by: Option<Claim>,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// Another process writes the folder.
    Taken,
    /// Another part of the same job has gone on without this one.
    OtherPart,
    /// Another job has taken the folder from this one.
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

fn description(kind: RefusalKind, by: Option<&Claim>) -> String {
    let by = by.map_or("a process whose claim cannot be read".into(), Claim::to_string);
    match kind {
        RefusalKind::Taken => format!("is written by {by}"),
        RefusalKind::OtherPart => {
            format!("is written by another part of this job, which has continued without this one: {by}")
        }
        RefusalKind::Fenced => format!("has been taken from this job by {by}"),
    }
}
