//! Data sets: from files to batches of numbers, the same on every worker.
//!
//! This crate reads data sets, alters training images, and prepares batches ahead of time. It uses no tensor
//! library, group or model: batches are plain numbers. `kolo-train`, above this crate, decides which samples
//! a worker takes. `kolo-sampler`, below it, provides the [`Key`](kolo_sampler::key::Key) that draws the
//! random numbers of an alteration.
//!
//! [`open`] reads a data set of the table [`DATASETS`] into memory. A [`DataSet`] returns batches of its
//! samples, normalized; only (seed, epoch, sample) decides how a sample is altered. A [`Loader`] has the
//! batches of this worker's shards ready when the training loop asks for them.
//!
//! ```
//! use kolo_data::{Part, open};
//!
//! let dataset = open("fashion-mnist-small")?;
//! let batch = dataset.batch(Part::Test, &[0, 1, 2], None)?;
//! assert_eq!(batch.shape, [3, 1, 28, 28]);
//! # Ok::<(), kolo_data::DataError>(())
//! ```
//!
//! To add a data set, write a file in `sets/` and a line in its table. Your own data set is an [`ImageSet`]
//! of images from any source, or any type that implements [`DataSet`], with samples of any kind.

mod augment;
mod batch;
mod dataset;
mod decode;
mod entry;
mod error;
mod fingerprint;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod geometry;
mod image_set;
mod images;
mod item_set;
mod listing;
mod loader;
mod mixing;
mod open;
mod options;
mod part;
mod pnm;
mod prefetch;
mod preprocessing;
mod read_samples;
mod resample;
mod sample_files;
mod sets;
mod split;
#[cfg(test)]
mod tests;
mod text;
mod tokenizer;

pub use augment::{Augment, AugmentKey};
pub use batch::{Batch, Normalize};
pub use dataset::{DataSet, ImageDataSet, SampleShape};
pub use entry::{DatasetEntry, Folder, Location, Opened};
pub use error::{DataError, TablePlace};
pub use fingerprint::{ContentHash, FINGERPRINT_SAMPLES, Fingerprint, Number};
pub use image_set::ImageSet;
pub use images::Images;
pub use item_set::ItemSet;
pub use listing::image_files;
pub use loader::{Loader, ShardBatch};
pub use mixing::{Mixing, MixingKey, Mixtures};
pub use open::{absolute, open, open_with, takes};
pub use options::OpenOptions;
pub use part::Part;
pub use prefetch::{Prefetch, PrefetchError};
pub use preprocessing::{NumberColumn, Preprocessing, TableColumns};
pub use read_samples::read_samples;
pub use sample_files::{SampleFiles, TableRow};
pub use sets::DATASETS;
pub use split::Split;
pub use text::{CONTEXT, NO_TOKEN};
pub use tokenizer::{BYTE_VOCABULARY, END_OF_DOCUMENT, Tokenizer};
