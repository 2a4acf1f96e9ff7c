//! Errors of the runs of a report, or of its file.

use std::io;
use std::path::PathBuf;

use kolo_run_folder::RANGE_PICTURE;

/// Reason why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// A run folder cannot be read.
    #[error(transparent)]
    Folder(#[from] kolo_run_folder::Error),
    /// The same folder was given twice.
    #[error("{} is given twice; give each run once", folder.display())]
    Twice { folder: PathBuf },
    /// The folder is that of a range test.
    #[error(
        "{} is the folder of a learning-rate range test, which trains nothing: look at its {RANGE_PICTURE}, and give the \
         folders of trainings",
        folder.display()
    )]
    RangeTest { folder: PathBuf },
    /// No folder was given.
    #[error("no run folder is given; give one at least")]
    NoRuns,
    /// The report cannot be written.
    #[error("cannot write {}: {source}; choose another place by --out", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The report would replace a file that is no report.
    #[error("{} exists and is no report; remove it, or choose another place by --out", path.display())]
    NotAReport { path: PathBuf },
}
