//! Checkpoints: folders of files in standard formats, independent of the number of workers.
//!
//! `weights.safetensors` holds the model under the names of its parameters. `optimizer.safetensors` holds the
//! optimizer's state as `<state>/<parameter>`. `residuals.safetensors` holds the reduction's state for each
//! shard, if any, as `shard<number>/<parameter>`. `position.json` holds the position of the run.
//! `manifest.json` holds length and SHA-256 of each file, so that damage is found and named. A checkpoint is
//! written under a temporary name, synced and renamed, so it exists whole or not at all. [`Writer`] does this
//! on its own thread while training continues; [`newest`] finds the last good checkpoint.
//!
//! The manifest lists the elements of each tensor in a file, and readers ask for ranges of flat memory. Ranks
//! that each hold a part of the optimizer's state can thus write their own files, which any other number of
//! ranks can read: see [`Part`].
//!
//! This crate sees no workers and no tensor library: values come in as slices of flat memory
//! (`kolo_optim::Layout`). Above it, `kolo_ddp::checkpoint` chooses the parts of a replica to save, and
//! resumes from them.

mod background;
mod error;
mod finite;
mod folder;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod header;
mod manifest;
mod outline;
mod position;
mod publish;
mod read;
mod read_tensors;
mod set;
mod snapshot;
mod source;
mod stored_file;
mod stream;
mod warning;
mod write;
mod writer;

pub use error::{Error, remedy};
pub use folder::{Found, list, newest, of_file, path, verify};
pub use guard::Guard;
pub use manifest::{FORMAT, FileEntry, Manifest, TensorEntry};
pub use outline::{MOST_AT_ONCE, Outline};
pub use position::Position;
pub use read::Reader;
pub use read_tensors::{Take, Wanted};
pub use set::{Set, WEIGHTS};
pub use snapshot::{Part, Snapshot};
pub use source::Source;
pub use warning::{Warning, tell};
pub use writer::Writer;

/// Formats a hash as two lower-case hexadecimal digits per byte.
pub fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
