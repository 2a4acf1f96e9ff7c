//! A run whose data has validation samples.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kolo_comm::threads;
use kolo_data::{AugmentKey, Batch, DataError, DataSet, Fingerprint, Part, Split};

use crate::model::{Computed, job, run_over};

/// Counts the test samples that a model sees.
struct Watched {
    data: Split<Computed>,
    tested: Arc<AtomicUsize>,
}

impl DataSet for Watched {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        self.data.samples(part)
    }

    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Result<Batch, DataError> {
        if part == Part::Test {
            self.tested.fetch_add(indices.len(), Ordering::SeqCst);
        }
        self.data.batch(part, indices, augment)
    }

    fn fingerprint(&self, part: Part) -> Fingerprint {
        self.data.fingerprint(part)
    }
}

#[test]
fn validation_samples_judge_each_epoch_and_the_test_samples_are_looked_at_once() {
    let place = tempfile::tempdir().unwrap();
    let run = |world: usize| {
        let (folder, tested) = (place.path().join(world.to_string()), Arc::new(AtomicUsize::new(0)));
        fs::create_dir(&folder).unwrap();
        threads::spawn(world, |group| {
            let data = Split::new(Arc::new(Computed), 0.25, 7).unwrap();
            assert_eq!(Part::ALL.map(|part| data.samples(part)), [46, 20, 16]);
            let data = Watched { data, tested: tested.clone() };
            run_over(group, job(&folder, None, false), data).unwrap();
        })
        .unwrap();
        assert_eq!(tested.load(Ordering::SeqCst), 20, "each once, on any of {world} workers");
        let table = fs::read_to_string(folder.join("metrics.csv")).unwrap();
        let header = table.lines().next().unwrap();
        assert!(header.contains(",val_accuracy,") && !header.contains("test_"), "{header}");
        assert_eq!(table.lines().count(), 4);
        let summary = fs::read_to_string(folder.join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        let scores = ["val_accuracy", "test_accuracy"].map(|name| summary[name].as_f64().unwrap());
        let column = header.split(',').position(|name| name == "val_accuracy").unwrap();
        let last = table.lines().last().unwrap().split(',').nth(column).unwrap().to_owned();
        assert_eq!(last.parse(), Ok(scores[0]));
        (scores, summary["weights_sha256"].clone())
    };
    assert_eq!(run(1), run(2));
}
