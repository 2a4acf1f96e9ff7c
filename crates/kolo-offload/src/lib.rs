//! An optimizer's state in a file instead of memory: any optimizer of Kolo's table can be
//! [`Stored`](kolo_optim::Stored) in a [`FolderStore`], with the same bits as without.
//!
//! The state is cut into records: all arrays of one block of 16,384 elements, or of one tensor where the rule
//! needs whole tensors. An update fetches the record of its elements. One thread reads the records that came
//! next in the last step ahead, and writes changed ones behind, so updates rarely wait for the disk.
//! Memory: a few MiB, and one record if that is larger.
//!
//! Below it, `kolo_optim` has the rules; above it, `kolo_sync` steps buckets and knows nothing of the file.

#![doc = include_str!("../README.md")]

mod file_store;
mod folder_store;
mod io_thread;
mod records;
mod state_file;
#[cfg(test)]
mod tests;

pub use file_store::BUFFERS;
pub use folder_store::FolderStore;
pub use state_file::{check_folder, is_in_memory};
