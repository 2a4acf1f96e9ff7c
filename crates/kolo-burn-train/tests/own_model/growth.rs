//! A batch that grows.

use std::path::Path;

use kolo_burn_train::Job;
use kolo_comm::{Group, threads};

use crate::model::{job, run};

/// Eight steps of eight samples, then four of twice as many, then two of six times as many, of which the last
/// ones are short.
fn growing(folder: &Path, steps: Option<u64>, resume: bool) -> Job {
    let mut job = job(folder, steps, resume);
    job.config.large_batch.grow_batch = vec!["1:2".parse().unwrap(), "2:3".parse().unwrap()];
    job.config.large_batch.label_smoothing = 0.1;
    job.config.rate.warmup_epochs = Some(1);
    job
}

#[test]
fn a_batch_that_grows_ends_in_the_same_weights_on_any_number_of_workers_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(Group::alone(), growing(folder.path(), None, false)).unwrap().unwrap();
    assert_eq!((whole.steps, whole.epochs), (14, 3));
    let text = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let field = |name: &str| -> Vec<u64> {
        let steps = text(folder.path(), "steps.jsonl");
        let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        steps.lines().map(|line| row(line)[name].as_u64().unwrap()).collect()
    };
    assert_eq!(field("images"), [8, 8, 8, 8, 8, 8, 8, 6, 16, 16, 16, 14, 48, 14]);
    assert_eq!(field("epoch"), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
    let scores = |folder: &Path| {
        let rows = text(folder, "metrics.csv");
        let columns = |row: &str| row.split(',').skip(5).map(String::from).collect::<Vec<_>>();
        rows.lines().map(columns).collect::<Vec<_>>()
    };
    assert_eq!(scores(folder.path()).len(), 1 + 3);
    let on = |world: usize, job: &(dyn Fn() -> Job + Sync)| {
        let ended = threads::spawn(world, |group| run(group, job()).unwrap().map(|end| end.weights_sha256));
        ended.unwrap().into_iter().flatten().next().unwrap()
    };
    for (world, cap) in [(2, 0.0001), (3, 25.0)] {
        let other = tempfile::tempdir().unwrap();
        let capped = || {
            let mut job = growing(other.path(), None, false);
            job.config.bucket_cap_mb = Some(cap);
            job
        };
        assert_eq!(on(world, &capped), whole.weights_sha256, "{world} workers");
    }
    // In the first epoch, at the first growth, between the growths, at the second one and after it.
    for (cut, before, after) in [(5, 2, 1), (8, 1, 3), (10, 3, 2), (12, 1, 2), (13, 2, 3)] {
        let parts = tempfile::tempdir().unwrap();
        assert_ne!(on(before, &|| growing(parts.path(), Some(cut), false)), whole.weights_sha256);
        let resumed = on(after, &|| growing(parts.path(), None, true));
        assert_eq!(resumed, whole.weights_sha256, "resumed after step {cut} by {after} workers");
        assert_eq!(scores(parts.path()), scores(folder.path()), "resumed after step {cut}");
        assert_eq!(text(parts.path(), "steps.jsonl").lines().count(), 14);
    }
}
