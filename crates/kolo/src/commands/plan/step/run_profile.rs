//! `kolo plan step --from RUN`: reads the profile of a job's own steps from its run folder.

use std::path::Path;

use kolo::Failure;
use kolo_comm::schedule::words::counted;
use kolo_plan::step::{MeasuredBucket, StepProfile, WireCost};
use kolo_run_folder::{BucketRow, Run, StepRow};

use super::other_profiles::measured_with;

/// First step that counts: buckets are cut anew after step 0, and profiled in the next five.
const FIRST: u64 = 10;

/// Fewest steps for a useful median.
const FEWEST: usize = 20;

/// Reads the profile of rank 0's steps, the number of shards in each, and the cost of the reduction with
/// which it was measured.
/// Fails if the run is too short, or lacks a measurement.
pub(super) fn read(folder: &Path) -> Result<(StepProfile, usize, WireCost), Failure> {
    let run = Run::read(folder).map_err(|error| Failure::input(format!("--from: {error}")))?;
    let (profile, shards) =
        profile(&run).map_err(|problem| Failure::input(format!("--from {}: {problem}", folder.display())))?;
    Ok((profile, shards, reduction(&run)))
}

fn reduction(run: &Run) -> WireCost {
    run.settings.text("reduction").map_or(WireCost::SUM, |text| measured_with(&text))
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
    let of = |field: fn(&StepRow) -> f64| median(steps.iter().map(|row| field(row)).collect());
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_burn_train::Recipe;

    #[test]
    fn the_reduction_of_a_run_is_that_of_its_settings() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["sum", "ef-sign", "qsgd:bits=8"] {
            let recipe = Recipe { reduction: text.into(), ..Recipe::default() };
            std::fs::write(folder.path().join("config.toml"), recipe.to_toml().unwrap()).unwrap();
            assert_eq!(reduction(&Run::read(folder.path()).unwrap()), measured_with(text), "{text}");
        }
        assert!(measured_with("sum").is_exact && !measured_with("qsgd:bits=8").is_exact);
    }
}
