//! Weights outside of a run: files that other programs load, and models that begin with such files.
//!
//! [`export`] makes a file from a run folder alone: names, shapes and values are in its checkpoint, and the
//! preprocessing of images is in its `preprocessing.json`. [`load`] is the way back, into any Burn module. A
//! further format is a file in `formats/` and a line in [`FORMATS`]. This crate knows no model.
//!
//! A tensor is exported as the model holds it. Only a `Linear` of Burn's layout `Col`, which Burn's own files
//! hold transposed, does not come back in the format `burn`.

mod description;
mod error;
mod export;
mod format;
mod formats;
mod load;
mod tensors;
mod tokenizer;

pub use description::Description;
pub use error::WeightsError;
pub use export::{Exported, Which, checkpoint, export, initial_weights};
pub use format::{NamedTensor, Stored, WeightFormat};
pub use formats::{FORMATS, TORCHVISION_MODELS, find, is_transformers, torchvision_name, weights_in};
pub use kolo_burn::with_values;
pub use load::{WeightsFile, load, load_except};
pub use tokenizer::{check_tokenizer, check_tokenizer_of_init};
