//! What can be wrong with a data set: each error names the file, what was found there, what was expected, and
//! the remedy.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a data set could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// No entry of the table has this name.
    #[error("unknown data set `{name}`; known are {known}")]
    UnknownDataset {
        /// The name asked for.
        name: String,
        /// The known ones, with how they are written.
        known: String,
    },
    /// The data set has no usual place, and none was given.
    #[error(
        "data set `{name}` needs a folder: write `{name}:DIR`, where DIR holds the files of {source_hint}"
    )]
    NoFolder {
        /// The data set.
        name: &'static str,
        /// Where the files come from.
        source_hint: &'static str,
    },
    /// A folder was given for a data set that is part of the program.
    #[error(
        "data set `{name}` is part of the program and takes no folder, but `{folder}` was given; write `{name}`"
    )]
    UnexpectedFolder {
        /// The data set.
        name: &'static str,
        /// The folder given.
        folder: String,
    },
    /// The folder is not there, or is not a folder.
    #[error("data set `{name}`: no folder {}; {remedy}", dir.display())]
    FolderMissing {
        /// The data set.
        name: &'static str,
        /// The folder looked for.
        dir: PathBuf,
        /// How to get the files.
        remedy: String,
    },
    /// The folder lacks a file.
    #[error("data set `{name}`: folder {} holds none of {expected}; {remedy}", dir.display())]
    FileMissing {
        /// The data set.
        name: &'static str,
        /// The folder searched.
        dir: PathBuf,
        /// The file names that would do.
        expected: String,
        /// How to get the files.
        remedy: String,
    },
    /// The operating system could not read the file, or its gzip stream is damaged.
    #[error("{}: cannot be read: {source}; if the file is damaged, get it again", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system or the decompressor says.
        source: io::Error,
    },
    /// The file does not begin as a file of its kind does.
    #[error(
        "{}: begins with 0x{found:08x}, but {what} begin with 0x{expected:08x}; is it the right file?",
        path.display()
    )]
    Magic {
        /// The file.
        path: PathBuf,
        /// Its first four bytes, big-endian.
        found: u32,
        /// What they should be.
        expected: u32,
        /// What kind of file was expected.
        what: &'static str,
    },
    /// The images have another size than those of this data set.
    #[error(
        "{}: images of {}x{} pixels, expected {}x{}; is it the right file?",
        path.display(), found.0, found.1, expected.0, expected.1
    )]
    Dimensions {
        /// The file.
        path: PathBuf,
        /// Height and width found.
        found: (u32, u32),
        /// Height and width of this data set.
        expected: (u32, u32),
    },
    /// The file is cut off, or too long.
    #[error(
        "{}: {found} bytes of data, expected {expected} ({}); get the file again",
        path.display(), if found < expected { "it is cut off" } else { "it is too long" }
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes found, uncompressed; of a file that is too long, the count at which reading stopped.
        found: u64,
        /// Bytes expected, uncompressed.
        expected: u64,
    },
    /// A label beyond the number of classes.
    #[error(
        "{}: image {index} has the label {label}, but the classes are 0 to {}; is it the right file?",
        path.display(), classes - 1
    )]
    Label {
        /// The file.
        path: PathBuf,
        /// Which image, from 0.
        index: usize,
        /// Its label.
        label: u8,
        /// Number of classes.
        classes: usize,
    },
    /// Images and labels do not belong together.
    #[error(
        "{} has {images} images, {} has {labels} labels; the counts must be equal: get both files again",
        images_path.display(), labels_path.display()
    )]
    Count {
        /// The file of images.
        images_path: PathBuf,
        /// Its count.
        images: usize,
        /// The file of labels.
        labels_path: PathBuf,
        /// Its count.
        labels: usize,
    },
    /// A file without a single image.
    #[error("{}: holds no images; get the file again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}
