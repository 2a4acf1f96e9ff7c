//! `kolo plan step --from RUN`: reads the profile of a job's own steps from its run folder.

use std::path::Path;

use kolo::Failure;
use kolo_comm::schedule::words::counted;
use kolo_plan::step::{MeasuredBucket, StepProfile};
use kolo_program::output::warn;
use kolo_run_folder::{BucketRow, Run, StepRow, median};

use super::origin::Origin;
use super::other_profiles::measured_with;

/// First step that counts: buckets are cut anew after step 0, and profiled in the next five.
const FIRST: u64 = 10;

/// Fewest steps for a useful median.
const FEWEST: usize = 20;

/// Reads the profile of rank 0's steps. Warns if workers shared cores.
/// Fails if the run is too short, or lacks a measurement.
pub(super) fn read(folder: &Path) -> Result<Origin, Failure> {
    let run = Run::read(folder).map_err(|error| Failure::input(format!("--from: {error}")))?;
    let (profile, shards) =
        profile(&run).map_err(|problem| Failure::input(format!("--from {}: {problem}", folder.display())))?;
    let shared = run.summary.as_ref().and_then(|summary| summary.workers_per_core);
    if let Some(shared) = shared.filter(|shared| *shared > 1.0) {
        warn(&format!(
            "--from {}: each core there had {shared} workers, so a step took longer than a worker's alone, and every prediction \
             is too long; measure with fewer workers, or with --model",
            folder.display()
        ));
    }
    let text = |name: &str, default: &str| run.settings.text(name).unwrap_or_else(|| default.into());
    let (reduction_name, precision) = (text("reduction", "sum"), text("precision.compute", "f32"));
    let reduction = measured_with(&reduction_name);
    let (shards, cores, caps, others) = (Some(shards), None, None, Vec::new());
    Ok(Origin { profile, reduction, reduction_name, precision, shards, cores, caps, others })
}

fn profile(run: &Run) -> Result<(StepProfile, usize), String> {
    let counts = |row: &&StepRow| row.step >= FIRST && !row.skipped;
    let steps: Vec<&StepRow> = run.steps.iter().filter(counts).collect();
    if steps.len() < FEWEST {
        return Err(format!(
            "{} after the first {FIRST} are too few; train at least {FEWEST}",
            counted(steps.len(), "step")
        ));
    }
    let of = |field: fn(&StepRow) -> f64| median(steps.iter().map(|row| field(row))).unwrap_or_default();
    let backward = of(|row| row.backward_seconds);
    if backward <= 0.0 {
        return Err("steps.jsonl does not say how long backward passes took; train a little anew".into());
    }
    let synchronized = run.buckets.iter().any(|bucket| bucket.ready.is_some());
    if !synchronized {
        return Err(
            "buckets.csv does not say when buckets were ready; train an epoch, with --sync every-step".into(),
        );
    }
    let number = |name: &str| run.settings.number(name).unwrap_or(1.0);
    let passes = (number("shards") / number("nproc")).max(1.0).round() as usize;
    let last = backward / passes as f64;
    let bucket = |row: &BucketRow| {
        let (bytes, wire_bytes, needed) = (row.bytes, row.wire_bytes, row.needed);
        MeasuredBucket { bytes, wire_bytes, ready: row.ready.unwrap_or(last), needed }
    };
    let buckets: Vec<MeasuredBucket> = run.buckets.iter().map(bucket).collect();
    let (own, optimizer) = (of(StepRow::compute_seconds), of(|row| row.optimizer_seconds));
    Ok((StepProfile::measured(own, backward, optimizer, passes, &buckets), passes))
}
