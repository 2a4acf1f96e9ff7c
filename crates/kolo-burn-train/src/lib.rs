//! Whole training runs of Burn models: [`kolo_train`] with Burn as its tensor library.
//!
//! [`Trainer`] is the trainer of any Burn module. Everything of `kolo_train` is here under the same name, so
//! that a program needs one crate. The binding itself is in `kolo-burn`, below; this crate adds what a run
//! needs besides: the context of a loss, the usual losses of a classifier, batches as tensors, the type in
//! which a run computes, and files of weights ([`weights`]) with which it may begin.

mod context;
mod device;
mod framework;
mod precision;
mod tensors;

pub use context::{TrainingContext, accuracy, classification, confusion, count_correct, cross_entropy};
pub use device::device;
pub use framework::Burn;
pub use kolo_train::*;
pub use kolo_weights as weights;
pub use precision::precision;
pub use tensors::image_tensors;

/// Trainer of a Burn module `M` on a data set `D`.
pub type Trainer<M, D> = kolo_train::Trainer<Burn, M, D>;
