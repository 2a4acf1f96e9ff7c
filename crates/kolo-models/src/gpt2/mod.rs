//! GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"): its module, its lines
//! of the table of models, and the continuation of texts.

mod entry;
mod generator;
mod model;
mod sampling;
#[cfg(test)]
mod tests;

pub(crate) use entry::SIZES;
pub use generator::{Continuation, Generator};
pub(crate) use model::lengths;
pub use model::{Gpt2, Gpt2Config};
pub use sampling::Sampling;
