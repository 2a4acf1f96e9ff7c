//! The job that `kolo check` checks.

use std::path::PathBuf;

use kolo_burn_train::Slowdown;
use kolo_recipe::Recipe;

/// A job before it starts, as the command line describes it.
pub(crate) struct CheckRequest<'a> {
    /// The recipe, fitted to the workers of the job.
    pub(crate) recipe: &'a Recipe,
    /// Run folder according to this rank; rank 0's counts.
    pub(crate) folder: PathBuf,
    /// True if the run starts, or continues from a checkpoint if there is one.
    pub(crate) may_continue: bool,
    pub(crate) resumes: bool,
    /// True if the run takes its folder from another process that writes it.
    pub(crate) take_over: bool,
    /// True if the run goes on with other samples than those of its checkpoint.
    pub(crate) accept_changed_data: bool,
    /// True if other workers can replace those that die.
    pub(crate) is_elastic: bool,
    pub(crate) slowdowns: &'a [Slowdown],
}
