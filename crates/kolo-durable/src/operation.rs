//! Operations on a file system, as far as their order matters.

use std::path::PathBuf;

/// An operation on a file system, as far as its order matters for what a power failure leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates a file.
    Create(PathBuf),
    /// Changes bytes of a file, or its length.
    Write(PathBuf),
    /// Makes a file's bytes durable.
    SyncFile(PathBuf),
    /// Creates a folder.
    CreateFolder(PathBuf),
    /// Makes the names in a folder durable.
    SyncFolder(PathBuf),
    /// Gives a file or folder another name, and replaces a file that had it.
    Rename(PathBuf, PathBuf),
    /// Exchanges the names of two files or folders.
    Exchange(PathBuf, PathBuf),
    /// Gives a file a second name.
    Link(PathBuf, PathBuf),
}
