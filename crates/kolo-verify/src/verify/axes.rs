//! The choices of a run, and those that a plan tries.

/// One way to run the job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) workers: usize,
    /// Number of summation servers besides the workers.
    pub(crate) servers: usize,
    /// Size of buckets in MiB.
    pub(crate) cap: f64,
    /// Transport, or `None` for the program's own choice.
    pub(crate) transport: Option<String>,
    /// Algorithm, or `None` for the program's own choice.
    pub(crate) algorithm: Option<String>,
    /// True if the run repeats the one before it.
    pub(crate) again: bool,
    /// Step after which the run is cut and continues from a checkpoint.
    pub(crate) resumed_after: Option<u64>,
    /// True if each step uses another setting that tuning would try.
    pub(crate) tuned: bool,
    /// State that is divided among the workers, by its name.
    pub(crate) divided: Option<&'static str>,
    /// True if the model computes its blocks a second time in the backward pass.
    pub(crate) recomputed: bool,
    /// True if the optimizer's state is in a file.
    pub(crate) offloaded: bool,
}

impl Run {
    /// A run that leaves all else to the program.
    pub(super) fn plain(workers: usize, cap: f64) -> Self {
        Run {
            workers,
            servers: 0,
            cap,
            transport: None,
            algorithm: None,
            again: false,
            resumed_after: None,
            tuned: false,
            divided: None,
            recomputed: false,
            offloaded: false,
        }
    }
}

/// The choices that may differ between runs.
#[derive(Clone, Debug)]
pub struct Axes {
    /// Numbers of workers, besides one.
    pub workers: Vec<usize>,
    /// Sizes of buckets in MiB.
    pub caps: Vec<f64>,
    /// The only transport to try.
    pub transport: Option<String>,
    /// The only algorithm to try.
    pub algorithm: Option<String>,
    /// Combinations to try.
    pub extent: Extent,
    /// Number of steps to compare.
    pub steps: u64,
    /// Names of state that the job can divide; none if it does so already.
    pub divisible: Vec<&'static str>,
    /// True if the job's model can recompute its blocks, and does not do so already.
    pub recomputes: bool,
    /// True if the job can have the optimizer's state in a file, and does not so already.
    pub offloads: bool,
}

/// Number of combinations to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// One for each number of workers, and no tuning or servers.
    Brief,
    /// Every choice once.
    Selection,
    /// Every combination.
    Full,
}
