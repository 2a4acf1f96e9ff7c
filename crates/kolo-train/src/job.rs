//! A run, and how a worker takes part in it.

use std::sync::Arc;

use burn::tensor::Device;
use kolo_comm::Group;
use kolo_data::DataSet;
use kolo_elastic::Member;

use crate::config::TrainConfig;
use crate::run_folder::RunFolder;
use crate::sinks::{SINKS, SinkEntry};
use crate::slowdown::Slowdown;

/// How a worker belongs to the workers of its run.
pub enum Membership {
    /// They stay the same for as long as the run lasts.
    Fixed(Group),
    /// Others may come and go.
    Elastic(Member),
}

/// All that a worker has to know of a run: what it is, and where it is written down.
pub struct Job {
    /// What the run is; the same for all workers.
    pub config: TrainConfig,
    /// What it trains on. The configuration only names it.
    pub data: Arc<dyn DataSet>,
    /// Where rank 0 writes, and where all ranks read if the run is resumed. A worker without it writes
    /// nothing.
    pub folder: Option<RunFolder>,
    /// Whether the folder holds an earlier part of the run, from which this one goes on.
    pub resume: bool,
    /// A slow worker is not dropped where fewer than so many would be left.
    pub min_workers: usize,
    /// A worker that is made slow, for trials.
    pub slowdown: Option<Slowdown>,
    /// What rank 0 writes down.
    pub sinks: Vec<SinkEntry>,
    /// What computes.
    pub device: Device,
}

impl Job {
    /// A new run on the CPU that writes nothing.
    pub fn new(config: TrainConfig, data: Arc<dyn DataSet>) -> Self {
        Job {
            config,
            data,
            folder: None,
            resume: false,
            min_workers: 1,
            slowdown: None,
            sinks: SINKS.to_vec(),
            device: Device::flex(),
        }
    }

    /// The same run, written to `folder` by rank 0, with all [`SINKS`].
    pub fn in_folder(self, folder: RunFolder) -> Self {
        Job { folder: Some(folder), ..self }
    }
}
