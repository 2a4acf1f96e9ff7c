//! `kolo plan step --from RUN`: reads the profile of a job's own steps from its run folder.

use std::path::Path;

use kolo::Failure;
use kolo_plan::step::{MeasuredBucket, StepProfile};
use kolo_run_folder::{BucketRow, Run, StepRow};

/// First step that counts: buckets are cut anew after step 0, and profiled in the next five.
const FIRST: u64 = 10;

/// Fewest steps for a useful median.
const FEWEST: usize = 20;

/// Reads the profile of rank 0's steps, and the name of the reduction with which it was measured.
/// Fails if the run is too short, or lacks a measurement.
pub(super) fn read(folder: &Path) -> Result<(StepProfile, String), Failure> {
    let run = Run::read(folder).map_err(|error| Failure::input(format!("--from: {error}")))?;
    let reduction = run.settings.text("reduction.name").unwrap_or_else(|| "sum".into());
    let profile =
        profile(&run).map_err(|problem| Failure::input(format!("--from {}: {problem}", folder.display())))?;
    Ok((profile, reduction))
}

fn profile(run: &Run) -> Result<StepProfile, String> {
    let counts = |row: &&StepRow| row.step >= FIRST && !row.skipped;
    let steps: Vec<&StepRow> = run.steps.iter().filter(counts).collect();
    if steps.len() < FEWEST {
        return Err(format!(
            "{} steps after the first {FIRST} are too few; train at least {FEWEST}",
            steps.len()
        ));
    }
    let of = |field: fn(&StepRow) -> f64| median(steps.iter().map(|row| field(row)).collect());
    let backward = of(|row| row.backward_seconds);
    if backward <= 0.0 {
        return Err("steps.jsonl does not say how long backward passes took; train a little anew".into());
    }
    let synchronised = run.buckets.iter().any(|bucket| bucket.ready.is_some());
    if !synchronised {
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
    Ok(StepProfile::measured(own, backward, optimizer, passes, &buckets))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
