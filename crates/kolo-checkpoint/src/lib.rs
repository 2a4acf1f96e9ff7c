//! Checkpoints: a folder with files that others can open, in which nothing depends on the number of workers.
//!
//! `weights.safetensors` holds the model under its parameters' own names, `optimizer.safetensors` the
//! optimizer's state as `<state>/<parameter>`, `residuals.safetensors` what the reduction keeps for each
//! shard as `shard<number>/<parameter>` (where it keeps something), `position.json` where the run was, and
//! `manifest.json` the length and SHA-256 of each, so that damage is found and named. A checkpoint is written
//! under a temporary name, synced and renamed: it is there whole or not at all. [`Writer`] does that on a
//! thread of its own while training goes on; [`newest`] finds the last good one.
//!
//! The manifest says which elements of which tensor a file holds, and reading asks for a range of flat
//! memory. So ranks that each hold a part of the optimizer's state can write it as files of their own, and
//! any other number of ranks can read it: see [`Part`].
//!
//! Never sees a worker or a tensor library: what is saved comes in as slices of flat memory
//! (`kolo_optim::Layout`). Above, `kolo_ddp::checkpoint` says what of a replica is saved and how it goes on
//! from there.

mod background;
mod error;
mod finite;
mod folder;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod manifest;
mod position;
mod publish;
mod read;
mod snapshot;
mod warning;
mod write;
mod writer;

pub use error::{Error, remedy};
pub use folder::{Found, list, newest, of_file, path, verify};
pub use guard::Guard;
pub use manifest::{FORMAT, FileEntry, Manifest, TensorEntry};
pub use position::Position;
pub use read::Reader;
pub use snapshot::{Part, Set, Snapshot, WEIGHTS, common_prefix, shard_prefix, state_prefix};
pub use warning::{Warning, tell};
pub use writer::Writer;

/// A hash as it is written: two lower-case digits a byte.
pub fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
