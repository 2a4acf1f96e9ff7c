//! What is done to a file system, as far as its order matters.

use std::path::PathBuf;

/// What is done to a file system, as far as its order matters for what is left after a power failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file is made.
    Create(PathBuf),
    /// Bytes of a file, or its length, change.
    Write(PathBuf),
    /// A file's bytes are made durable.
    SyncFile(PathBuf),
    /// A folder is made.
    CreateFolder(PathBuf),
    /// The names in a folder are made durable.
    SyncFolder(PathBuf),
    /// A file or folder gets another name, in place of whatever had it.
    Rename(PathBuf, PathBuf),
    /// Two files or folders get each other's names.
    Exchange(PathBuf, PathBuf),
    /// A file gets a second name.
    Link(PathBuf, PathBuf),
}
