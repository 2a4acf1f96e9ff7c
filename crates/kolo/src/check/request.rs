//! The job that `kolo check` is to look at.

use std::path::PathBuf;

use kolo_train::{Recipe, Slowdown};

/// A job before it starts, as the command line describes it.
pub(crate) struct CheckRequest<'a> {
    /// The recipe, fitted to the workers of the job.
    pub(crate) recipe: &'a Recipe,
    /// The run folder as this rank knows it; rank 0's counts.
    pub(crate) folder: PathBuf,
    /// True where the run starts, or goes on from a checkpoint if there is one.
    pub(crate) may_continue: bool,
    /// True where the run goes on from a checkpoint.
    pub(crate) resumes: bool,
    /// True where the run folder is taken from the process that writes it.
    pub(crate) take_over: bool,
    /// True where others can take the place of workers that die.
    pub(crate) is_elastic: bool,
    /// Workers that are made slow.
    pub(crate) slowdowns: &'a [Slowdown],
}
