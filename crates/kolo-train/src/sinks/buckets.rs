//! `buckets.csv`: how long each bucket's reductions took.

use kolo_ddp::BucketTiming;

use super::sink::{MetricSink, Record, SinkEntry};
use crate::error::Error;
use crate::meter::percentile;
use crate::run_folder::RunFolder;

/// Entry of the table.
pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: "buckets.csv",
    about: "a row a bucket: its size and how long its reductions took",
    open: |run| {
        Some(Box::new(Buckets { folder: run.folder?.clone(), samples: Vec::new(), is_written: true }))
    },
};

struct Buckets {
    folder: RunFolder,
    /// Bytes of each bucket, and the microseconds of its reductions.
    samples: Vec<(usize, Vec<f64>)>,
    is_written: bool,
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
        let sizes = |other: &[BucketTiming]| other.iter().map(|bucket| bucket.bytes).collect::<Vec<_>>();
        if self.samples.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>() != sizes(buckets) {
            // The buckets have been rebuilt, as they are after the first step.
            self.samples = buckets.iter().map(|bucket| (bucket.bytes, Vec::new())).collect();
        }
        for ((_, samples), bucket) in self.samples.iter_mut().zip(buckets) {
            samples.push(bucket.seconds * 1e6);
        }
        self.is_written = false;
    }

    fn csv(&self) -> String {
        let mut text = String::from("bucket,bytes,p50_us,p95_us,p99_us\n");
        for (bucket, (bytes, samples)) in self.samples.iter().enumerate() {
            let [p50, p95, p99] = [50.0, 95.0, 99.0].map(|percent| percentile(samples, percent));
            text += &format!("{bucket},{bytes},{p50:.1},{p95:.1},{p99:.1}\n");
        }
        text
    }
}
