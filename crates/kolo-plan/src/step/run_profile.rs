//! The profile of a job's own steps, from its run folder.

use kolo_run_folder::{Run, StepRow, median};

use super::profile::StepProfile;

/// The first steps do not count: buckets are cut anew after the first, and profiled in the next five.
const FIRST: u64 = 10;

/// So many steps are the least of which a median says something.
const FEWEST: usize = 20;

/// Why a run has no profile of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProfile {
    /// It has too few steps.
    #[error("{steps} steps after the first {FIRST} are too few; train at least {FEWEST}")]
    TooShort {
        /// Its steps that count.
        steps: usize,
    },
    /// Its steps do not say what the backward pass took, as in runs of the first versions.
    #[error("steps.jsonl does not say how long backward passes took; train a little anew")]
    NoBackward,
    /// Its buckets do not say when they were ready.
    #[error("buckets.csv does not say when buckets were ready; train an epoch, with --sync every step")]
    NoBuckets,
}

/// The steps that count: those after the first ones that were not skipped.
pub fn settled_steps(run: &Run) -> impl Iterator<Item = &StepRow> + Clone {
    run.steps.iter().filter(|row| row.step >= FIRST && !row.skipped)
}

/// The profile of rank 0's steps.
///
/// # Errors
///
/// The run is too short, or has not measured what is needed.
pub fn profile_of(run: &Run) -> Result<StepProfile, NoProfile> {
    let steps = settled_steps(run).count();
    if steps < FEWEST {
        return Err(NoProfile::TooShort { steps });
    }
    let of = |field: fn(&StepRow) -> f64| median(settled_steps(run).map(field)).unwrap_or(0.0);
    let backward = of(|row| row.backward_seconds);
    if backward <= 0.0 {
        return Err(NoProfile::NoBackward);
    }
    if !run.buckets.iter().any(|bucket| bucket.ready.is_some()) {
        return Err(NoProfile::NoBuckets);
    }
    let number = |name: &str| run.settings.number(name).unwrap_or(1.0);
    let passes = (number("shards") / number("nproc")).max(1.0).round() as usize;
    let last = backward / passes as f64;
    let buckets: Vec<(f64, f64)> =
        run.buckets.iter().map(|bucket| (bucket.bytes, bucket.ready.unwrap_or(last))).collect();
    let (own, optimizer) = (of(StepRow::compute_seconds), of(|row| row.optimizer_seconds));
    Ok(StepProfile::measured(own, backward, optimizer, passes, &buckets))
}
