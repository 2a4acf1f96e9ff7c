//! `kolo train`: from a configuration to a run folder.

mod checkpoints;
pub(crate) mod config;
mod course;
mod desk;
mod ending;
mod epoch;
mod evaluate;
mod folder;
mod generations;
mod lines;
mod meter;
mod place;
mod progress;
mod share;
mod signals;
mod slow;
mod summary;
pub(crate) mod worker;

pub(crate) use config::{TrainConfig, check_bucket_cap};
pub(crate) use folder::RunFolder;
pub(crate) use generations::{GenerationRow, unix};
pub(crate) use meter::percentile;
pub(crate) use slow::Slow;
