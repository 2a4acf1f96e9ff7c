//! `buckets.csv`: for each bucket its bytes, the bytes on the wire, the times of its reductions, when its
//! gradient was ready, when its values were needed, and how long the training thread waited for it.

use std::time::{Duration, Instant};

use kolo_ddp::BucketTiming;
use kolo_recipe::RunFolder;
use kolo_run_folder::{BUCKETS, BucketRow};

use super::sink::{MetricSink, Record, SinkEntry};
use crate::samples::Samples;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: BUCKETS,
    about: "a row per bucket: its bytes, the bytes of a shard's part on the wire, the time of its reductions, \
            when it was ready, when its values were needed, and how long the step waited for it",
    open: |run| {
        Some(Box::new(Buckets {
            folder: run.folder?.clone(),
            written: Instant::now(),
            samples: Vec::new(),
            is_written: true,
        }))
    },
};

/// Time between two writes during an epoch, for those who watch the run.
const EVERY: Duration = Duration::from_secs(10);

struct Buckets {
    folder: RunFolder,
    written: Instant,
    /// Each bucket in its last reduction, and the times of all of its reductions.
    samples: Vec<(BucketTiming, Times)>,
    is_written: bool,
}

/// Times of one bucket in its reductions, in seconds.
#[derive(Default)]
struct Times {
    took: Samples,
    ready: Samples,
    needed: Samples,
    exposed: Samples,
}

impl MetricSink for Buckets {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match record {
            Record::Step { report, .. } => {
                self.add(&report.traffic.buckets);
                if self.written.elapsed() >= EVERY { self.flush() } else { Ok(()) }
            }
            Record::Epoch(_) => self.flush(),
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.is_written {
            self.written = Instant::now();
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
            self.samples = buckets.iter().map(|bucket| (*bucket, Times::default())).collect();
        }
        for ((last, times), bucket) in self.samples.iter_mut().zip(buckets) {
            *last = *bucket;
            times.took.push(bucket.seconds);
            times.ready.push(bucket.ready);
            times.needed.push(bucket.needed);
            times.exposed.push(bucket.exposed);
        }
        self.is_written = false;
    }

    fn csv(&self) -> String {
        let row = |(bucket, (timing, times)): (usize, &(BucketTiming, Times))| BucketRow {
            bucket,
            bytes: timing.bytes as f64,
            wire_bytes: timing.wire_bytes as f64,
            p50: times.took.percentile(50.0),
            p95: times.took.percentile(95.0),
            p99: times.took.percentile(99.0),
            ready: Some(times.ready.percentile(50.0)),
            needed: Some(times.needed.percentile(50.0)),
            exposed: Some(times.exposed.percentile(50.0)),
        };
        BucketRow::csv(&self.samples.iter().enumerate().map(row).collect::<Vec<_>>())
    }
}
