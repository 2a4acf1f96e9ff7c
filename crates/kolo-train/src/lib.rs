//! A whole training run as a library: from a configuration to a run folder.
//!
//! A run is a model of [`models`] and a data set of `kolo-data`, trained by every worker that takes part:
//! [`train`]. This crate decides what a run is ([`TrainConfig`]), writes what it leaves behind
//! ([`RunFolder`]: configuration, metrics, checkpoints), and goes on after a worker's death or from a
//! checkpoint. It never sees a command line, and it starts no processes: `kolo`, above it, does both. Below
//! it are `kolo-data` (batches), `kolo-burn` (the model on its tensor library) and `kolo-ddp` (the step).

mod checkpoints;
mod config;
mod course;
mod desk;
mod ending;
mod epoch;
mod error;
mod evaluate;
mod folder;
mod generations;
mod lines;
mod meter;
pub mod models;
mod place;
mod progress;
mod share;
mod signals;
mod slow;
mod summary;
mod tensors;
mod worker;

pub use config::{KEEP, RateConfig, SCHEDULES, TrainConfig, check_bucket_cap};
pub use error::Error;
pub use folder::RunFolder;
pub use generations::{GenerationRow, unix};
pub use meter::percentile;
pub use slow::Slow;
pub use tensors::image_tensors;
pub use worker::{Seat, train};
