//! `buckets.csv`: how many bytes each bucket has, and travels in, how long its reductions took,
//! when its gradient was there, and when its values were needed.

use kolo_ddp::BucketTiming;

use super::sink::{MetricSink, Record, SinkEntry};
use crate::error::Error;
use crate::meter::percentile;
use crate::run_folder::RunFolder;

/// Entry of the table.
pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: "buckets.csv",
    about: "a row a bucket: its bytes, those in which a shard's part of it travels, how long its reductions took, when it was ready, when its values were needed",
    open: |run| {
        Some(Box::new(Buckets { folder: run.folder?.clone(), samples: Vec::new(), is_written: true }))
    },
};

struct Buckets {
    folder: RunFolder,
    /// What each bucket was in its last reduction, and the times of all of them.
    samples: Vec<(BucketTiming, Samples)>,
    is_written: bool,
}

/// Of one bucket in each step, in microseconds.
#[derive(Default)]
struct Samples {
    took: Vec<f64>,
    ready: Vec<f64>,
    needed: Vec<f64>,
}

impl MetricSink for Buckets {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match record {
            Record::Step { report, .. } => {
                self.add(&report.buckets);
                Ok(())
            }
            Record::Epoch(_) => self.flush(),
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.is_written {
            self.folder.write(&self.folder.path().join(ENTRY.name), self.csv().as_bytes())?;
            self.is_written = true;
        }
        Ok(())
    }
}

impl Buckets {
    fn add(&mut self, buckets: &[BucketTiming]) {
        if buckets.is_empty() {
            // Between two outer steps of islands.
            return;
        }
        let sizes = |other: &[BucketTiming]| other.iter().map(|bucket| bucket.bytes).collect::<Vec<_>>();
        let known: Vec<BucketTiming> = self.samples.iter().map(|(bucket, _)| *bucket).collect();
        if sizes(&known) != sizes(buckets) {
            // The buckets have been rebuilt, as they are after the first step.
            self.samples = buckets.iter().map(|bucket| (*bucket, Samples::default())).collect();
        }
        for ((last, samples), bucket) in self.samples.iter_mut().zip(buckets) {
            *last = *bucket;
            samples.took.push(bucket.seconds * 1e6);
            samples.ready.push(bucket.ready * 1e6);
            samples.needed.push(bucket.needed * 1e6);
        }
        self.is_written = false;
    }

    fn csv(&self) -> String {
        let mut text = String::from("bucket,bytes,wire_bytes,p50_us,p95_us,p99_us,ready_us,needed_us\n");
        for (number, (bucket, samples)) in self.samples.iter().enumerate() {
            let [p50, p95, p99] = [50.0, 95.0, 99.0].map(|percent| percentile(&samples.took, percent));
            let [ready, needed] = [&samples.ready, &samples.needed].map(|times| percentile(times, 50.0));
            let BucketTiming { bytes, wire_bytes, .. } = bucket;
            text +=
                &format!("{number},{bytes},{wire_bytes},{p50:.1},{p95:.1},{p99:.1},{ready:.1},{needed:.1}\n");
        }
        text
    }
}
