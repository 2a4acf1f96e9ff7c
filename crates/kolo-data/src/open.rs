//! From what the user typed to a data set in memory.

use std::sync::Arc;

use crate::dataset::ImageDataSet;
use crate::entry::DatasetEntry;
use crate::error::DataError;
use crate::sets::DATASETS;

/// Opens a data set by what the user typed: a name of [`DATASETS`], for most of them followed by `:DIR`.
///
/// DIR is the folder with the files, or one that holds the folder which the archive unpacks to.
///
/// # Errors
///
/// No entry has that name, or its files are missing or damaged; every message says what to do.
pub fn open(spec: &str) -> Result<Arc<dyn ImageDataSet>, DataError> {
    let (name, folder) = match spec.split_once(':') {
        Some((name, folder)) => (name, Some(folder)),
        None => (spec, None),
    };
    let entry =
        DATASETS.iter().find(|entry| entry.name == name).ok_or_else(|| DataError::UnknownDataset {
            name: name.into(),
            known: DATASETS.iter().map(DatasetEntry::usage).collect::<Vec<_>>().join(", "),
        })?;
    (entry.open)(&entry.folder(folder)?)
}
