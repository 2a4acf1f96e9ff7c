//! From what the user typed to a data set in memory.

use std::path::{Path, PathBuf};

use crate::error::DataError;
use crate::file::Source;
use crate::images::{Dataset, Images};
use crate::table::{DATASETS, DatasetEntry, Format, Place};
use crate::{cifar, embedded, idx};

/// Where the files may be inside the folder: there, or where unpacking the archive (or torchvision) puts
/// them.
const SUBFOLDERS: &[&str] =
    &["", "cifar-10-batches-bin", "cifar-100-binary", "MNIST/raw", "FashionMNIST/raw"];

/// Opens a data set by what the user typed: a name of [`DATASETS`](crate::DATASETS), for most of them
/// followed by `:DIR`.
///
/// DIR is the folder with the files, or one that holds the folder which the archive unpacks to.
///
/// # Errors
///
/// See [`DataError`]; every message says what to do.
pub fn open(spec: &str) -> Result<Dataset, DataError> {
    let (name, folder) = match spec.split_once(':') {
        Some((name, folder)) => (name, Some(folder)),
        None => (spec, None),
    };
    let entry =
        DATASETS.iter().find(|entry| entry.name == name).ok_or_else(|| DataError::UnknownDataset {
            name: name.into(),
            known: DATASETS.iter().map(DatasetEntry::usage).collect::<Vec<_>>().join(", "),
        })?;
    let files = Files { entry, folder: folder_of(entry, folder)? };
    let train = entry.shape.apply(files.images(true)?);
    let test = entry.shape.apply(files.images(false)?);
    let (mean, std) = train.mean_and_std();
    Ok(Dataset { name: entry.name, classes: entry.classes, train, test, mean, std, augment: entry.augment })
}

fn folder_of(entry: &DatasetEntry, given: Option<&str>) -> Result<PathBuf, DataError> {
    let name = entry.name;
    let folder = match (entry.place, given) {
        (Place::Embedded, None) => return Ok(PathBuf::new()),
        (Place::Embedded, Some(folder)) => {
            return Err(DataError::UnexpectedFolder { name, folder: folder.into() });
        }
        (Place::Given, None | Some("")) => return Err(DataError::NoFolder { name, source_hint: entry.get }),
        (Place::Usually(folder), None | Some("")) => folder,
        (_, Some(folder)) => folder,
    };
    if !Path::new(folder).is_dir() {
        return Err(DataError::FolderMissing { name, dir: folder.into(), remedy: entry.remedy() });
    }
    Ok(folder.into())
}

struct Files<'a> {
    entry: &'a DatasetEntry,
    folder: PathBuf,
}

impl Files<'_> {
    fn images(&self, train: bool) -> Result<Images, DataError> {
        let classes = self.entry.classes;
        match self.entry.format {
            Format::Embedded => {
                let [images, labels] = embedded::sources(train)?;
                idx::read(images, labels, classes)
            }
            Format::Idx => {
                let part = if train { "train" } else { "t10k" };
                let images = self.open_idx(part, "images", 3)?;
                idx::read(images, self.open_idx(part, "labels", 1)?, classes)
            }
            Format::Cifar10 => {
                let record = cifar::Record { label_bytes: 1, count: 10_000 };
                let names: Vec<String> = if train {
                    (1..=5).map(|i| format!("data_batch_{i}.bin")).collect()
                } else {
                    vec!["test_batch.bin".into()]
                };
                cifar::read(
                    names
                        .iter()
                        .map(|name| self.open(std::slice::from_ref(name)))
                        .collect::<Result<_, _>>()?,
                    record,
                    classes,
                )
            }
            Format::Cifar100 => {
                let (name, count) = if train { ("train.bin", 50_000) } else { ("test.bin", 10_000) };
                cifar::read(
                    vec![self.open(&[name.into()])?],
                    cifar::Record { label_bytes: 2, count },
                    classes,
                )
            }
        }
    }

    /// One of the usual names: with a dash (as published) or a point (as some archives have it), compressed
    /// or not.
    fn open_idx(&self, part: &str, what: &str, dimensions: u8) -> Result<Source, DataError> {
        let names = ['-', '.'].map(|dash| format!("{part}-{what}{dash}idx{dimensions}-ubyte"));
        self.open(&names.each_ref().map(|name| [name.clone(), format!("{name}.gz")]).concat())
    }

    /// The first of `names` that exists, in the folder or where an archive would have put it.
    fn open(&self, names: &[String]) -> Result<Source, DataError> {
        let paths =
            SUBFOLDERS.iter().flat_map(|sub| names.iter().map(move |name| self.folder.join(sub).join(name)));
        match paths.into_iter().find(|path| path.is_file()) {
            Some(path) => Source::open(&path),
            None => Err(DataError::FileMissing {
                name: self.entry.name,
                dir: self.folder.clone(),
                expected: names.join(", "),
                remedy: self.entry.remedy(),
            }),
        }
    }
}
