//! Data sets: from files to batches of numbers, the same on every worker.
//!
//! This crate reads data sets, alters training images, and prepares batches ahead of time. It never sees a
//! tensor library, a group or a model: batches are plain numbers. Above it stands `kolo-train`, which decides
//! which samples a worker takes; below it stands `kolo-ddp`, whose [`Key`](kolo_ddp::key::Key) draws the
//! random numbers of an alteration.
//!
//! [`open`] reads a data set of the table [`DATASETS`] into memory as bytes ([`Images`]). [`Images::batch`]
//! makes numbers of some of them, normalised and altered as (seed, epoch, sample) alone decide, and
//! [`Prefetch`] does so ahead of time on its own thread.
//!
//! ```
//! use kolo_data::{Normalise, open};
//!
//! let dataset = open("fashion-mnist-small")?;
//! let batch = dataset.test.batch(&[0, 1, 2], &Normalise::of(&dataset), None);
//! assert_eq!(batch.shape, [3, 1, 28, 28]);
//! # Ok::<(), kolo_data::DataError>(())
//! ```
//!
//! A further data set of a known format is one line in `table.rs`; a further format is one file and one line
//! in `open.rs`.

mod augment;
mod batch;
mod cifar;
mod embedded;
mod error;
mod file;
mod idx;
mod images;
mod open;
mod prefetch;
mod shape;
mod table;
#[cfg(test)]
mod tests;

pub use augment::{Augment, AugmentKey};
pub use batch::{Batch, Normalise};
pub use error::DataError;
pub use images::{Dataset, Images};
pub use open::open;
pub use prefetch::{Prefetch, PrefetchError, Request};
pub use shape::Shape;
pub use table::{DATASETS, DatasetEntry, Place};
