//! Runs for tests, made in memory.

use kolo_run_folder::{BucketRow, NumberTable, RankTimes, RanksRow, Run, Settings, StepRow, Summary};

/// A run without findings: 30 ms per step, of which 1 ms is exposed communication, on two workers.
pub(crate) fn run(steps: u64) -> Run {
    let step = |step: u64| StepRow {
        step,
        epoch: step / 50,
        loss: Some(2.3 / (1.0 + step as f64 / 20.0)),
        samples: 64.0,
        learning_rate: 0.1,
        seconds: 0.030 + 0.001 * (step % 3) as f64,
        comm_seconds: 0.006,
        exposed_seconds: 0.001,
        backward_seconds: 0.016,
        optimizer_seconds: 0.003,
        ..StepRow::default()
    };
    let settings = [("model", "small".into()), ("data", "fashion-mnist-small".into()), ("nproc", 2.into())];
    Run {
        folder: "runs/0001".into(),
        name: "0001".into(),
        settings: Settings(settings.into_iter().map(|(name, value)| (String::from(name), value)).collect()),
        steps: (0..steps).map(step).collect(),
        unit: "images".into(),
        epochs: NumberTable {
            names: ["epoch", "train_loss", "test_accuracy"].map(String::from).into(),
            rows: (1..4).map(|n| [n as f64, 2.0 / n as f64, 0.5 + 0.1 * n as f64].map(Some).into()).collect(),
        },
        buckets: buckets(&[(1e6, 0.0006), (4e6, 0.0022), (4e6, 0.0023), (0.8e6, 0.0005)]),
        ranks: Vec::new(),
        generations: Vec::new(),
        changes: Vec::new(),
        summary: Some(Summary { world_size: Some(2), transport: Some("shm".into()), ..Summary::default() }),
        remarks: Vec::new(),
    }
}

/// Buckets of the given (bytes, seconds).
pub(crate) fn buckets(buckets: &[(f64, f64)]) -> Vec<BucketRow> {
    let bucket = |(bucket, &(bytes, p50)): (usize, &(f64, f64))| BucketRow {
        bucket,
        bytes,
        wire_bytes: bytes,
        p50,
        p95: 1.3 * p50,
        p99: 1.5 * p50,
        ready: None,
        exposed: None,
        needed: None,
    };
    buckets.iter().enumerate().map(bucket).collect()
}

/// A run without findings, but with these buckets.
pub(crate) fn with_buckets(sizes: &[(f64, f64)]) -> Run {
    Run { buckets: buckets(sizes), ..run(200) }
}

/// Adds the given seconds of exposed communication to each step.
pub(crate) fn waiting(mut run: Run, seconds: f64) -> Run {
    for step in &mut run.steps {
        step.seconds += seconds;
        step.comm_seconds += seconds;
        step.exposed_seconds += seconds;
    }
    run
}

/// Three comparisons of ranks that compute and wait for rank 0, for the given seconds per step.
pub(crate) fn comparisons(ranks: &[(f64, f64)]) -> Vec<RanksRow> {
    let times = |(compute_seconds, exposed_seconds): &(f64, f64)| RankTimes {
        shards: 1,
        compute_seconds: *compute_seconds,
        exposed_seconds: *exposed_seconds,
        waited_for: (*exposed_seconds > 0.0).then_some(0),
        waited_seconds: *exposed_seconds,
        ..RankTimes::default()
    };
    let row = |step| RanksRow { step, generation: 1, ranks: ranks.iter().map(times).collect() };
    [20, 40, 60].map(row).into()
}
