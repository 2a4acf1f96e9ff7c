//! `kolo plan step --from RUN`: the profile of a job's own steps, from its run folder.

use std::path::Path;

use kolo::Failure;
use kolo_plan::step::{StepProfile, profile_of};
use kolo_run_folder::Run;

/// Reads the profile of rank 0's steps.
///
/// # Errors
///
/// The folder is none of a run, its run is too short, or has not measured what is needed.
pub(super) fn read(folder: &Path) -> Result<StepProfile, Failure> {
    let run = Run::read(folder).map_err(|error| Failure::input(format!("--from: {error}")))?;
    profile_of(&run).map_err(|problem| Failure::input(format!("--from {}: {problem}", folder.display())))
}
