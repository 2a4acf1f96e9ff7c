//! A run, and a worker's membership in it.

use kolo_comm::{Group, Options, env};
use kolo_elastic::{MEMBER, Member, StopSignal, report_fixed};
use kolo_metrics::{LiveMetrics, SINKS, SinkEntry};
use kolo_recipe::Recipe;
use kolo_recipe::RunFolder;

use crate::error::Error;
use crate::range_test::RangeTest;
use crate::slowdown::Slowdown;

/// Number of connections between two workers that a tuned run opens to try.
pub const TUNED_STREAMS: usize = 4;

/// A worker's membership in its run.
#[derive(Debug)]
pub enum Membership {
    /// The workers stay the same throughout the run.
    Fixed(Group),
    /// Workers may join and leave.
    Elastic(Member),
}

impl Membership {
    /// Reads the membership from the launcher's environment: a member of an elastic job (`kolo launch`), a
    /// worker of a fixed one (torchrun, mpirun, Slurm), or a single process.
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, or the others cannot be reached.
    pub fn from_env() -> Result<Self, Error> {
        Self::of(&Options::from_env()?)
    }

    /// Like [`Membership::from_env`]; a tuned run opens more [connections](TUNED_STREAMS) to try. Fails as
    /// [`Membership::from_env`] does.
    pub fn for_run(config: &Recipe) -> Result<Self, Error> {
        let spare_streams = config.tune.then_some(TUNED_STREAMS);
        Self::of(&Options { spare_streams, ..Options::from_env()? })
    }

    fn of(options: &Options) -> Result<Self, Error> {
        Ok(match Member::with_options(options)? {
            Some(member) => Membership::Elastic(member),
            None => {
                if let Some(backend) = options.backend {
                    report_fixed(options, &format!("`{}={}`", env::BACKEND, backend.name));
                }
                Membership::Fixed(Group::of_job(options)?)
            }
        })
    }
}

/// Returns true if this process replaces a worker that died: its job has begun before.
pub fn replaces_another() -> bool {
    let name = std::env::var(MEMBER).unwrap_or_default();
    name.rsplit_once('.').and_then(|(_, before)| before.parse().ok()).is_some_and(|before: usize| before > 0)
}

/// A worker's description of a run, besides the user's own code: the recipe, and the places of its records.
#[derive(Debug)]
pub struct Job {
    /// Recipe of the run; the same for all workers.
    pub config: Recipe,
    /// Folder that rank 0 writes, and that all ranks read if the run is resumed. A worker without it writes
    /// nothing.
    pub folder: Option<RunFolder>,
    /// True if the folder holds an earlier part of the run, from which this one continues.
    pub resume: bool,
    /// True to take the run folder from another process that writes it.
    pub take_over: bool,
    /// True to resume a run although its data, or the order of its samples, differs from its checkpoint.
    pub accept_changed_data: bool,
    /// Fewest workers that must remain when a slow worker is dropped.
    pub min_workers: usize,
    /// Workers to slow down, for trials.
    pub slowdowns: Vec<Slowdown>,
    /// Sinks of rank 0.
    pub sinks: Vec<SinkEntry>,
    /// Live views of the run.
    pub live: LiveMetrics,
    /// Further signals at which the run saves and ends.
    pub stop_on: Vec<StopSignal>,
    /// Learning-rate range test in place of a training, which writes no files: its weights are useless.
    pub range_test: Option<RangeTest>,
    /// True if the program gets the model. Where values are divided among the workers, each of them then
    /// gathers all at the end.
    pub keeps_model: bool,
}

impl Job {
    /// Makes a new run without a folder.
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
            range_test: None,
            keeps_model: true,
        }
    }
}
