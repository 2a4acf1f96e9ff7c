//! Errors of data sets: each names the file, the value found, the value expected, and the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use kolo_schedule::words::{counted, first_names};
use thiserror::Error;

use crate::part::Part;

/// Reason why a data set could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum DataError {
    /// No entry of the table has this name.
    #[error("unknown data set `{name}`; known are {known}")]
    UnknownDataset { name: String, known: String },
    /// A path was given in place of a data set.
    #[error("`{path}` is a path, and a data set needs its kind before that: give `{kind}:{path}`")]
    NoKind { path: String, kind: &'static str },
    /// The data set has no default folder, and none was given.
    #[error(
        "data set `{name}` needs a folder: write `{name}:DIR`, where DIR holds the files of {source_hint}"
    )]
    NoFolder { name: &'static str, source_hint: &'static str },
    /// A folder was given for a data set that is part of the program.
    #[error(
        "data set `{name}` is part of the program and takes no folder, but `{folder}` was given; write `{name}`"
    )]
    UnexpectedFolder { name: &'static str, folder: String },
    /// The folder does not exist, or is not a folder.
    #[error("data set `{name}`: no folder {}; {remedy}", dir.display())]
    FolderMissing { name: &'static str, dir: PathBuf, remedy: String },
    /// The folder lacks a file.
    #[error("data set `{name}`: folder {} holds none of {expected}; {remedy}", dir.display())]
    FileMissing {
        name: &'static str,
        dir: PathBuf,
        /// File names of which one would suffice.
        expected: String,
        remedy: String,
    },
    /// The operating system could not read the file, or its gzip stream is damaged.
    #[error("{}: cannot be read: {source}; if the file is damaged, get it again", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The operating system could not read a folder or a file of the user.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file does not begin like a file of its kind.
    #[error(
        "{}: begins with 0x{found:08x}, but {what} begin with 0x{expected:08x}; is it the right file?",
        path.display()
    )]
    Magic {
        path: PathBuf,
        /// Its first four bytes, big-endian.
        found: u32,
        expected: u32,
        what: &'static str,
    },
    /// The images have another size than the images of this data set.
    #[error(
        "{} has images of {}x{} pixels, but this data set has {}x{}; is it the right file?",
        path.display(), found.0, found.1, expected.0, expected.1
    )]
    Dimensions { path: PathBuf, found: (u32, u32), expected: (u32, u32) },
    /// The file is cut off, or too long.
    #[error(
        "{} has {found} bytes of data instead of {expected} ({}); get the file again",
        path.display(), if found < expected { "it is cut off" } else { "it is too long" }
    )]
    Length {
        path: PathBuf,
        /// Bytes found, uncompressed; of a file that is too long, the count at which reading stopped.
        found: u64,
        /// Bytes expected, uncompressed.
        expected: u64,
    },
    /// A label is not below the number of classes.
    #[error(
        "{}: image {index} has the label {label}, but the classes are 0 to {}; is it the right file?",
        path.display(), classes - 1
    )]
    Label {
        path: PathBuf,
        /// Index of the image, from 0.
        index: usize,
        label: u32,
        classes: usize,
    },
    /// Images and labels do not belong together.
    #[error(
        "{} has {}, {} has {}; the counts must be equal: get both files again",
        images_path.display(), counted(images, "image"), labels_path.display(), counted(labels, "label")
    )]
    Count { images_path: PathBuf, images: usize, labels_path: PathBuf, labels: usize },
    /// The images for training have another size than those for tests.
    #[error(
        "the training images are {}, and the test images {}; give images of one size",
        size(train),
        size(test)
    )]
    UnequalSizes { train: [usize; 3], test: [usize; 3] },
    /// There are not as many pixels as images of this size have.
    #[error("the {} images have {found} pixels, but their labels need {expected}", name(*part))]
    Pixels { part: Part, found: usize, expected: usize },
    /// A label of images in memory is not below the number of classes.
    #[error(
        "{} image {index} has the label {label}, but there {} {}, from 0",
        name(*part), if *classes == 1 { "is" } else { "are" }, counted(classes, "class")
    )]
    LabelInMemory {
        part: Part,
        /// Index of the image, from 0.
        index: usize,
        label: u32,
        classes: usize,
    },
    /// The data set lies where the user says, and the user does not say it.
    #[error("data set `{usage}` needs a path: give {holds}")]
    NoPath { usage: String, holds: &'static str },
    /// There is nothing at the user's path.
    #[error("data set `{usage}`: there is no {}; give {holds}", path.display())]
    PathMissing { usage: String, path: PathBuf, holds: &'static str },
    /// The data set does not take an option.
    #[error("{}: data set `{name}` does not take it; leave it out", with_value(option, value))]
    OptionUnused { option: &'static str, value: String, name: &'static str },
    /// An option has an invalid value.
    #[error("{}: {problem}", with_value(option, value))]
    Option { option: &'static str, value: String, problem: String },
    /// The data set has a validation part already.
    #[error("--val-split: the data has validation samples of its own; leave it out")]
    SplitTwice,
    /// A part of the data would be empty.
    #[error(
        "--val-split {share}: of {} it leaves none for {}; give another share",
        counted(samples, unit), name(*part)
    )]
    SplitEmpty {
        share: f64,
        /// Training samples before the split.
        samples: usize,
        unit: &'static str,
        part: Part,
    },
    /// A part of a single document would be empty.
    #[error(
        "--val-split {share}: the text is one document of {bytes} bytes, which leaves too little for {}; give another \
         share, more text, or a folder with `train` and `val`", name(*part)
    )]
    SplitShort { share: f64, bytes: usize, part: Part },
    /// A place of a table is wrong.
    #[error("{}, {place}: {problem}", path.display())]
    Table { path: PathBuf, place: TablePlace, problem: String },
    /// A table is a Parquet file, and this build reads none.
    #[error(
        "{}: is a Parquet file, which this build does not read; build it with `--features parquet`, or save the \
         table as CSV", path.display()
    )]
    NoParquet { path: PathBuf },
    /// A text has a byte that is not UTF-8.
    #[error(
        "{}: byte {byte} is not UTF-8, in line {line}; convert the text, for example by `iconv -f LATIN1 -t UTF-8`", path.display()
    )]
    NotUtf8 {
        path: PathBuf,
        /// Place of the byte, from 0.
        byte: usize,
        /// Its line, from 1.
        line: usize,
    },
    /// A text is UTF-16.
    #[error("{}: is UTF-16; convert the text, for example by `iconv -f UTF-16 -t UTF-8`", path.display())]
    Utf16 { path: PathBuf },
    /// A file of a tokenizer cannot be used.
    #[error("{} {problem}", path.display())]
    Tokenizer { path: PathBuf, problem: String },
    /// A tokenizer in a build without the feature that reads it.
    #[error("--tokenizer: this build takes bytes only; build it with `--features bpe`, or leave it out")]
    NoBpe,
    /// There is no document.
    #[error("{}: holds no text to train on; give a text file, a .jsonl file, or a folder of .txt, .md and .jsonl files", path.display())]
    NoText { path: PathBuf },
    /// A folder of images has no folders.
    #[error("{}: holds no folders; put the images of each class into a folder of its own", folder.display())]
    NoClasses { folder: PathBuf },
    /// A class has no images.
    #[error(
        "{}: holds no image ({}); add images, or remove the folder", folder.display(), crate::decode::ENDINGS.join(", ")
    )]
    EmptyClass { folder: PathBuf },
    /// None of a class's images can be read, and unreadable ones are skipped.
    #[error(
        "{}: Kolo can read none of its {} ({}); --skip-unreadable would leave the class empty: restore one of them, or \
         remove the folder", folder.display(), counted(files.len(), "image"), listed_files(folder, files)
    )]
    UnreadableClass {
        folder: PathBuf,
        /// Each file, and what is wrong with it.
        files: Vec<(PathBuf, String)>,
    },
    /// A folder beside the training images, or a text beside the training texts, is no part.
    #[error(
        "{}: {} counts as the part to train on, and beside it there may be only `val` and `test`; move this, or rename what is no such \
         part", path.display(), train.display()
    )]
    UnknownPart { path: PathBuf, train: PathBuf },
    /// A folder is called like a part, as are all beside it, but not as Kolo calls it.
    #[error(
        "{}: looks like a part of the data, and would count as a class; rename it to `{part}`, or put the folders of the \
         classes into one folder", path.display()
    )]
    LikePart { path: PathBuf, part: &'static str },
    /// A text has a part to test or validate with, and none to train on.
    #[error("{}: counts as a part of a text, but there is no part `train` beside it; add it, or rename this", path.display())]
    NoTrainingPart { path: PathBuf },
    /// Two parts have different classes.
    #[error("{} has no class `{class}`, which {} has; both need the same folders", folder.display(), other.display())]
    ClassesDiffer { class: String, folder: PathBuf, other: PathBuf },
    /// A class has the same name in two parts, in other forms of Unicode.
    #[error(
        "the class `{class}` of {} has another form of Unicode in {} ({} and {}), so its name looks the same and is not; \
         rename one of them, for example by `convmv -r -f utf8 -t utf8 --nfc --notest`",
        folder.display(), other.display(), class.escape_default(), there.escape_default()
    )]
    ClassForms { class: String, folder: PathBuf, there: String, other: PathBuf },
    /// The class of a folder is none of the trained model.
    #[error("{}: the model was trained for the classes {known}, and this is none of them", folder.display())]
    UnknownClass { folder: PathBuf, known: String },
    /// A file is no image that can be decoded.
    #[error("{} {problem}", path.display())]
    NoImage { path: PathBuf, problem: String },
    /// The name of a class is not UTF-8.
    #[error("{}: the name of this folder is not valid UTF-8; rename it", path.display())]
    NameNotText { path: PathBuf },
    /// A symbolic link leads to a folder above it.
    #[error("{}: is a link to a folder above it, so its files would never end; remove the link", path.display())]
    LinkLoop { path: PathBuf },
    /// A sample cannot be read or decoded.
    #[error("{} sample {index}: {problem}", name(*part))]
    Sample {
        part: Part,
        /// Index of the sample, from 0.
        index: usize,
        problem: String,
    },
    /// A file of a sample cannot be read or decoded.
    #[error(
        "{} sample {index}: {} {problem}; restore or remove the file, or begin a run with --skip-unreadable, which leaves such \
         files out", name(*part), file.display()
    )]
    SampleFile {
        part: Part,
        /// Index of the sample, from 0.
        index: usize,
        file: PathBuf,
        problem: String,
    },
    /// A file holds no images.
    #[error("{}: holds no images; get the file again", path.display())]
    Empty { path: PathBuf },
}

/// Place in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TablePlace {
    /// Line of a text, from 1.
    Line(usize),
    /// Row of a Parquet file, from 1.
    Row(usize),
    /// Schema of a Parquet file, which names the columns.
    Schema,
}

impl fmt::Display for TablePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TablePlace::Line(line) => write!(f, "line {line}"),
            TablePlace::Row(row) => write!(f, "row {row}"),
            TablePlace::Schema => f.write_str("schema"),
        }
    }
}

impl DataError {
    /// Creates the error of a text that is not UTF-8.
    pub(crate) fn not_utf8(path: &Path, error: &FromUtf8Error) -> Self {
        let byte = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count();
        DataError::NotUtf8 { path: path.into(), byte, line }
    }

    /// Creates the error of a sample that a data set of your own cannot read or decode.
    ///
    /// ```
    /// use kolo_data::{DataError, Part};
    ///
    /// let error = DataError::sample(Part::Train, 7, "its label is -1; labels are at least 0");
    /// assert_eq!(error.to_string(), "training sample 7: its label is -1; labels are at least 0");
    /// ```
    pub fn sample(part: Part, index: usize, problem: impl ToString) -> Self {
        DataError::Sample { part, index, problem: problem.to_string() }
    }
}

/// Names the first files of a folder, and says what is wrong with each.
fn listed_files(folder: &Path, files: &[(PathBuf, String)]) -> String {
    let words = |(path, problem): &(PathBuf, String)| {
        format!("{} {problem}", path.strip_prefix(folder).unwrap_or(path).display())
    };
    first_names(files.iter().map(words), 10)
}

fn with_value(option: &str, value: &str) -> String {
    format!("{option} {value}").trim_end().to_owned()
}

fn name(part: Part) -> &'static str {
    match part {
        Part::Train => "training",
        Part::Test => "test",
        Part::Validation => "validation",
    }
}

fn size([channels, height, width]: &[usize; 3]) -> String {
    format!("{channels}x{height}x{width}")
}
