//! Data sets: from files to batches of numbers, the same on every worker.
//!
//! [`open`] reads a data set of the table [`DATASETS`] into memory as bytes ([`Images`]). [`Images::batch`]
//! makes numbers of some of them, normalised and altered as (seed, epoch, sample) alone decide, and
//! [`Prefetch`] does so ahead of time on its own thread. Which samples a worker takes is not decided here.
//!
//! ```
//! use kolo_burn::data::{Normalise, open};
//!
//! let dataset = open("fashion-mnist-small")?;
//! let batch = dataset.test.batch(&[0, 1, 2], &Normalise::of(&dataset), None);
//! assert_eq!(batch.shape, [3, 1, 28, 28]);
//! # Ok::<(), kolo_burn::data::DataError>(())
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
