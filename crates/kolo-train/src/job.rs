//! A run, and how a worker takes part in it.

use burn::tensor::Device;
use kolo_comm::{Group, Options};
use kolo_elastic::{MEMBER, Member, StopSignal};

use crate::config::Recipe;
use crate::error::Error;
use crate::run_folder::RunFolder;
use crate::sinks::{LiveMetrics, SINKS, SinkEntry};
use crate::slowdown::Slowdown;

/// Connections between two workers that a run opens to try them, if it is tuned.
pub const TUNED_STREAMS: usize = 4;

/// How a worker belongs to the workers of its run.
pub enum Membership {
    /// They stay the same for as long as the run lasts.
    Fixed(Group),
    /// Others may come and go.
    Elastic(Member),
}

impl Membership {
    /// As the launcher has started this process: as a member of an elastic job (`kolo launch`), as a worker
    /// of a fixed one (torchrun, mpirun, Slurm), or alone.
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, or the others cannot be reached.
    pub fn from_env() -> Result<Self, Error> {
        Self::of(&Options::from_env()?)
    }

    /// The same for a run of this configuration: if it is tuned, with [connections](TUNED_STREAMS) to try.
    ///
    /// # Errors
    ///
    /// As [`Membership::from_env`].
    pub fn for_run(config: &Recipe) -> Result<Self, Error> {
        let spare_streams = config.tune.then_some(TUNED_STREAMS);
        Self::of(&Options { spare_streams, ..Options::from_env()? })
    }

    fn of(options: &Options) -> Result<Self, Error> {
        Ok(match Member::with_options(options)? {
            Some(member) => Membership::Elastic(member),
            None => Membership::Fixed(Group::of_job(options)?),
        })
    }
}

/// Whether this process was started in the place of a worker that died: its job has begun before.
pub fn replaces_another() -> bool {
    let name = std::env::var(MEMBER).unwrap_or_default();
    name.rsplit_once('.').and_then(|(_, before)| before.parse().ok()).is_some_and(|before: usize| before > 0)
}

/// All that a worker has to know of a run besides the user's own code: what it is, and where it is written
/// down.
pub struct Job {
    /// What the run is; the same for all workers.
    pub config: Recipe,
    /// Where rank 0 writes, and where all ranks read if the run is resumed. A worker without it writes
    /// nothing.
    pub folder: Option<RunFolder>,
    /// Whether the folder holds an earlier part of the run, from which this one goes on.
    pub resume: bool,
    /// Whether the run folder is taken from another process that writes it.
    pub take_over: bool,
    /// Whether a run is resumed although its data, or what decides the order of the samples, is not what its
    /// checkpoint was written with.
    pub accept_changed_data: bool,
    /// A slow worker is not dropped where fewer than so many would be left.
    pub min_workers: usize,
    /// Workers that are made slow, for trials.
    pub slowdowns: Vec<Slowdown>,
    /// What rank 0 writes down.
    pub sinks: Vec<SinkEntry>,
    /// How it can be watched while it goes on.
    pub live: LiveMetrics,
    /// Signals besides the usual ones at which it saves and ends.
    pub stop_on: Vec<StopSignal>,
    /// What computes.
    pub device: Device,
}

impl Job {
    /// A new run on the CPU that is not written down.
    pub fn new(config: Recipe) -> Self {
        Job {
            config,
            folder: None,
            resume: false,
            take_over: false,
            accept_changed_data: false,
            min_workers: 1,
            slowdowns: Vec::new(),
            sinks: SINKS.to_vec(),
            live: LiveMetrics::default(),
            stop_on: Vec::new(),
            device: Device::flex(),
        }
    }
}
