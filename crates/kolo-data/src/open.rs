//! Opening a data set by the text on the command line.

use std::path;
use std::sync::Arc;

use crate::dataset::ImageDataSet;
use crate::entry::DatasetEntry;
use crate::error::DataError;
use crate::sets::DATASETS;

/// Opens a data set by the text on the command line: a name of [`DATASETS`], for most of them followed by
/// `:DIR`.
///
/// DIR is the folder with the files, or the parent of the folder that the archive unpacks to.
///
/// # Errors
///
/// No entry has that name, or its files are missing or damaged; every message contains the remedy.
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

/// Returns `spec` with its folder as an absolute path, so that a run folder can store it whatever the
/// current directory is. Text that names no data set of [`DATASETS`] stays as it is.
pub fn absolute(spec: &str) -> String {
    let Some((name, folder)) = spec.split_once(':') else { return spec.into() };
    let is_known = DATASETS.iter().any(|entry| entry.name == name);
    match path::absolute(folder) {
        Ok(folder) if is_known => format!("{name}:{}", folder.display()),
        _ => spec.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_folder_does_not_depend_on_the_current_one() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute("mnist:some/place"), format!("mnist:{}", here.join("some/place").display()));
        assert_eq!(absolute("mnist:/some/place"), "mnist:/some/place");
        for unchanged in ["mnist", "mnist:", "fashion-mnist-small", "own:some/place"] {
            assert_eq!(absolute(unchanged), unchanged);
        }
    }
}
