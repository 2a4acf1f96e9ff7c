//! A promise of every sink in the table: its file does not depend on interruptions and changes of the writer.

use std::time::Duration;

use kolo_ddp::{BucketTiming, GradientTraffic, NoiseScale, StepReport, StepTimes};
use kolo_recipe::Recipe;
use kolo_recipe::RunFolder;

use super::*;
use crate::calendar::Calendar;
use crate::meter::{EpochRow, StepRow};
use crate::metric::{Metric, Score, Scores};
use crate::progress::Progress;

pub(super) const STEPS: usize = 4;
pub(super) const TOTAL: u64 = 10;

fn report() -> StepReport {
    StepReport {
        loss: 0.5,
        count: 8.0,
        gradient_norm: Some(0.25),
        noise_scale: Some(NoiseScale::default()),
        traffic: GradientTraffic {
            buckets: vec![BucketTiming {
                bytes: 4096,
                wire_bytes: 512,
                seconds: 0.001,
                ready: 0.002,
                needed: 0.004,
                exposed: 0.0005,
            }],
            summed_bytes: 4096,
            started_early: 0,
            peak_bytes: None,
        },
        times: StepTimes {
            communicating: Duration::from_millis(1),
            backward: Duration::from_millis(40),
            optimizer: Duration::from_millis(5),
            ..StepTimes::default()
        },
        ..StepReport::default()
    }
}

fn epoch_row(progress: &Progress) -> EpochRow {
    EpochRow {
        epoch: progress.epochs_begun(),
        steps: progress.step(),
        epochs_done: progress.epoch_of_figures(progress.step()),
        world_size: 2,
        seconds_per_step: 0.1,
        samples_per_second: 80.0,
        comm_fraction: 0.2,
        exposed_comm_fraction: 0.1,
        train_loss: 0.5,
        scores: Scores(vec![Score { metric: Metric::ACCURACY, value: 0.9 }]),
        learning_rate: 0.01,
        noise_scale: None,
    }
}

/// Takes steps up to step `until` and passes each to the sink, if there is one.
pub(super) fn go(progress: &mut Progress, until: u64, sink: &mut Option<Box<dyn MetricSink>>) {
    while progress.step() < until {
        let (step, report) = (progress.step(), report());
        let row = StepRow::new(step, step as usize / STEPS, 0.01, Duration::from_millis(100), &report);
        progress.add_step(row.clone());
        let epoch = progress.epoch_meter().clone();
        if let Some(sink) = sink {
            sink.record(&Record::Step { row: &row, report: &report, epoch: &epoch }).unwrap();
        }
        if progress.is_unrecorded() {
            let row = epoch_row(progress);
            progress.add_epoch(row.clone());
            if let Some(sink) = sink {
                sink.record(&Record::Epoch(&row)).unwrap();
                sink.flush().unwrap();
            }
        }
    }
}

/// Returns the sink's file after a whole run. If the run is `interrupted`, a sink that has written up to some
/// step is gone, and another worker, which has taken the same steps, continues from an earlier or a later
/// one.
fn written(entry: &SinkEntry, interrupted: Option<(u64, u64)>) -> Option<String> {
    let place = tempfile::tempdir().unwrap();
    let (folder, config) = (RunFolder::at(place.path().into()), Recipe::default());
    let open = |progress: &Progress| {
        let mut sink = (entry.open)(&SinkContext {
            folder: Some(&folder),
            config: &config,
            metrics: &[Metric::ACCURACY],
            unit: "images",
            live: &LiveMetrics::default(),
        })?;
        sink.align(progress).unwrap();
        Some(sink)
    };
    let mut progress = Progress::at(0, Calendar::for_tests(STEPS as u64, TOTAL));
    let mut sink = open(&progress);
    if let Some((until, from)) = interrupted {
        go(&mut progress, until, &mut sink);
        if let Some(sink) = &mut sink {
            sink.flush().unwrap();
        }
        progress = Progress::at(0, Calendar::for_tests(STEPS as u64, TOTAL));
        go(&mut progress, from, &mut None);
        sink = open(&progress);
    }
    go(&mut progress, TOTAL, &mut sink);
    sink?.flush().unwrap();
    std::fs::read_to_string(place.path().join(entry.name)).ok()
}

#[test]
fn a_file_is_the_same_whoever_has_written_it() {
    for entry in SINKS {
        let whole = written(entry, None);
        for interrupted in [(3, 3), (6, 5), (6, 3), (5, 8), (8, 8), (10, 7), (2, 10)] {
            // Only workers that saw the reductions have their times.
            if entry.name == "buckets.csv" && interrupted.1 == TOTAL {
                continue;
            }
            assert_eq!(written(entry, Some(interrupted)), whole, "{} {interrupted:?}", entry.name);
        }
    }
    let steps = SINKS.iter().find(|entry| entry.name == "steps.jsonl").and_then(|entry| written(entry, None));
    assert_eq!(steps.unwrap().lines().count(), TOTAL as usize);
}

#[test]
fn names_are_unique_and_the_summary_is_last() {
    for entry in SINKS {
        assert_eq!(SINKS.iter().filter(|other| other.name == entry.name).count(), 1, "{}", entry.name);
        assert!(!entry.about.is_empty());
    }
    assert_eq!(SINKS.last().map(|entry| entry.name), Some(kolo_run_folder::SUMMARY));
}
