//! Files that exist whole or not at all, even after a power failure.
//!
//! The order is always the same: write, sync the file, give it its name, sync the folder that has the
//! name (fsync(2): "calling fsync() does not necessarily ensure that the entry in the directory
//! containing the file has also reached disk"). A new folder is a name in its parent.
//!
//! Nothing waits for the other end of a pipe, and nothing reads a device, which has no end: both are refused.
//!
//! With the feature `recording` tests see the order of all operations, and can let some of them fail.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Kolo runs on Linux only: build it there, or in a container or virtual machine of Linux (on Windows: WSL 2)"
);

mod folder;
mod operation;
#[cfg(feature = "recording")]
pub mod recording;
#[cfg(not(feature = "recording"))]
#[path = "not_recording.rs"]
mod recording;
mod regular;
mod whole;

pub use folder::{create_folder, create_folders, sync_folder};
pub use operation::Operation;
pub use regular::{open, open_with, read, read_to_string};
pub use whole::{
    append, exchange, fill, hard_link, rename, replace, replace_through, sync_file, truncate, write,
    write_with,
};
