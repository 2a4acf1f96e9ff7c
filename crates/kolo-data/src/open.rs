//! Opening a data set by the text on the command line.

use std::path::{self, Path};
use std::sync::Arc;

use crate::decode::ENDINGS;
use crate::entry::{DatasetEntry, Opened};
use crate::error::DataError;
use crate::format::documents;
use crate::listing::files_below;
use crate::options::OpenOptions;
use crate::sets::DATASETS;
use crate::split::Split;

/// Opens a data set by the text on the command line: a name of [`DATASETS`], for most of them followed by
/// `:DIR`.
///
/// DIR is the folder with the files, or the parent of the folder that the archive unpacks to.
///
/// # Errors
///
/// No entry has that name, or its files are missing or damaged; every message contains the remedy.
pub fn open(spec: &str) -> Opened {
    open_with(spec, &OpenOptions::default())
}

/// Opens a data set as [`open`] does, with options.
///
/// # Errors
///
/// Same as [`open`], and options that are invalid or that the data set does not take.
pub fn open_with(spec: &str, options: &OpenOptions) -> Opened {
    let (name, folder) = match spec.split_once(':') {
        Some((name, folder)) => (name, Some(folder)),
        None => (spec, None),
    };
    let unknown = || match kind_of(Path::new(spec)) {
        Some(kind) => DataError::NoKind { path: spec.into(), kind },
        None => DataError::UnknownDataset {
            name: name.into(),
            known: DATASETS.iter().map(DatasetEntry::usage).collect::<Vec<_>>().join(", "),
        },
    };
    let entry = DATASETS.iter().find(|entry| entry.name == name).ok_or_else(unknown)?;
    if let Some((option, value)) =
        options.given().into_iter().find(|(option, _)| !entry.takes.contains(option))
    {
        return Err(DataError::OptionUnused { option, value, name: entry.name });
    }
    let data = (entry.open)(&entry.folder(folder)?, options)?;
    match options.val_split {
        // A text divides its documents itself.
        Some(share) if !data.shape().is_text => Ok(Arc::new(Split::new(data, share, options.seed)?)),
        _ => Ok(data),
    }
}

/// Returns the name of the data set that the user's file or folder is likely to be.
fn kind_of(path: &Path) -> Option<&'static str> {
    let has = |endings: &[&str]| files_below(path, endings).is_ok_and(|files| !files.is_empty());
    if path.is_dir() {
        let kinds = [
            (&ENDINGS[..], "folder"),
            (&["csv"], "csv"),
            (&["parquet"], "parquet"),
            (&documents::ENDINGS, "text"),
        ];
        return Some(kinds.into_iter().find(|(endings, _)| has(endings)).map_or("folder", |(_, kind)| kind));
    }
    let ending = path.is_file().then(|| path.extension()?.to_str()).flatten()?.to_ascii_lowercase();
    let table = ["csv", "parquet"].into_iter().find(|kind| **kind == ending);
    table.or(documents::ENDINGS.contains(&&*ending).then_some("text"))
}

/// Returns true if the data set of a text on the command line takes an option.
pub fn takes(spec: &str, option: &str) -> bool {
    let name = spec.split(':').next().unwrap_or_default();
    DATASETS.iter().any(|entry| entry.name == name && entry.takes.contains(&option))
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
