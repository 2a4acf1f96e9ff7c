//! Entries of the table of data sets, and the search for their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dataset::ImageDataSet;
use crate::error::DataError;
use crate::format::source::Source;
use crate::options::OpenOptions;

/// A data set, or the reason that it cannot be opened.
pub type Opened = Result<Arc<dyn ImageDataSet>, DataError>;

/// A named data set. The command line's help, the error messages and [`open`](crate::open) read it.
#[derive(Debug)]
pub struct DatasetEntry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Location of its files.
    pub location: Location,
    /// Options that it takes, beside those that all take.
    pub takes: &'static [&'static str],
    /// Source of its files, or what lies at the user's path; completes "get it with …" or "get it from …".
    pub get: &'static str,
    /// Opens its files.
    pub open: fn(&Folder, &OpenOptions) -> Opened,
}

/// Location of a data set's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the program itself.
    Embedded,
    /// In this folder, unless the user names another.
    Usually(&'static str),
    /// In the folder that the user names.
    Given,
    /// At the user's path, whose form is this word.
    Own(&'static str),
}

impl DatasetEntry {
    /// Returns the form on the command line: `cifar10:DIR`, `fashion-mnist[:DIR]`, `fashion-mnist-small`.
    pub fn usage(&self) -> String {
        match self.location {
            Location::Embedded => self.name.into(),
            Location::Usually(_) => format!("{}[:DIR]", self.name),
            Location::Given => format!("{}:DIR", self.name),
            Location::Own(path) => format!("{}:{path}", self.name),
        }
    }

    /// Returns the folder of its files; `given` is the folder that the user named, if any.
    pub(crate) fn folder(&self, given: Option<&str>) -> Result<Folder, DataError> {
        let name = self.name;
        let folder = match (self.location, given) {
            (Location::Embedded, None) => return Ok(self.folder_at(Path::new(""))),
            (Location::Embedded, Some(folder)) => {
                return Err(DataError::UnexpectedFolder { name, folder: folder.into() });
            }
            (Location::Own(_), None | Some("")) => {
                return Err(DataError::NoPath { usage: self.usage(), holds: self.get });
            }
            (Location::Own(_), Some(path)) if Path::new(path).exists() => {
                return Ok(self.folder_at(Path::new(path)));
            }
            (Location::Own(_), Some(path)) => {
                return Err(DataError::PathMissing {
                    usage: self.usage(),
                    path: path.into(),
                    holds: self.get,
                });
            }
            (Location::Given, None | Some("")) => {
                return Err(DataError::NoFolder { name, source_hint: self.get });
            }
            (Location::Usually(folder), None | Some("")) => folder,
            (_, Some(folder)) => folder,
        };
        if !Path::new(folder).is_dir() {
            return Err(DataError::FolderMissing { name, dir: folder.into(), remedy: self.remedy() });
        }
        Ok(self.folder_at(Path::new(folder)))
    }

    fn folder_at(&self, path: &Path) -> Folder {
        Folder { name: self.name, path: path.into(), remedy: self.remedy() }
    }

    /// Returns the advice for missing files.
    fn remedy(&self) -> String {
        let get = self.get;
        let how =
            if get.starts_with("http") { format!("get it from {get}") } else { format!("get it with {get}") };
        format!("{how}, or name the folder that has it: `{}:DIR`", self.name)
    }
}

/// Places of files inside a folder: the folder itself, or the place where the archive or torchvision
/// unpacks them.
const SUBFOLDERS: &[&str] =
    &["", "cifar-10-batches-bin", "cifar-100-binary", "MNIST/raw", "FashionMNIST/raw"];

/// The folder that holds a data set's files.
#[derive(Clone, Debug)]
pub struct Folder {
    name: &'static str,
    pub(crate) path: PathBuf,
    remedy: String,
}

impl Folder {
    /// Opens the first of `names` that exists, in the folder or where an archive unpacks it.
    pub(crate) fn open(&self, names: &[String]) -> Result<Source, DataError> {
        let paths =
            SUBFOLDERS.iter().flat_map(|sub| names.iter().map(move |name| self.path.join(sub).join(name)));
        match paths.into_iter().find(|path| path.is_file()) {
            Some(path) => Source::open(&path),
            None => Err(DataError::FileMissing {
                name: self.name,
                dir: self.path.clone(),
                expected: names.join(", "),
                remedy: self.remedy.clone(),
            }),
        }
    }
}
