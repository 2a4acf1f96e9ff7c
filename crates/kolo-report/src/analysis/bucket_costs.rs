//! Cost of the reductions of a step, and its cause: bytes, the number of buckets, or another rank.

use kolo_run_folder::{BucketRow, Run, median};

use crate::statistics::line_through;

/// A bucket that takes this many times as long as another one of as many bytes waits for something else.
const LATE: f64 = 3.0;

/// Cost of the reductions of one step, by the buckets' medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BucketCosts {
    pub(crate) seconds: f64,
    /// Bytes of all buckets on the wire.
    pub(crate) bytes: f64,
    /// Seconds per bucket, independent of its bytes; `None` if all buckets have about the same size.
    pub(crate) fixed: Option<f64>,
    /// Seconds per byte; `None` if all buckets have about the same size.
    pub(crate) per_byte: Option<f64>,
    /// Seconds by which buckets take longer than others of as many bytes or more: they wait for a rank
    /// whose gradients are not ready.
    pub(crate) late: f64,
    /// Ratio of the 95th percentile of the latency to the median. It is near 1 for a wire, which takes
    /// about as long each time, but not for a rank that is disturbed.
    pub(crate) spread: f64,
}

impl BucketCosts {
    /// Returns `None` if no bucket is known.
    pub(crate) fn of(run: &Run) -> Option<Self> {
        if run.buckets.is_empty() {
            return None;
        }
        let points: Vec<(f64, f64)> =
            run.buckets.iter().map(|bucket| (bucket.wire_bytes, bucket.p50)).collect();
        let line = line_through(&points);
        let seconds: f64 = run.buckets.iter().map(|bucket| bucket.p50).sum();
        Some(BucketCosts {
            seconds,
            bytes: run.buckets.iter().map(|bucket| bucket.wire_bytes).sum(),
            fixed: line.map(|line| line.at_zero.max(0.0)),
            per_byte: line.map(|line| line.slope.max(0.0)),
            late: late(&run.buckets),
            spread: run.buckets.iter().map(|bucket| bucket.p95).sum::<f64>() / seconds.max(1e-12),
        })
    }

    /// Share of the reductions' time that is proportional to the bytes.
    pub(crate) fn byte_share(&self) -> Option<f64> {
        Some((self.per_byte? * self.bytes / self.seconds.max(1e-12)).min(1.0))
    }

    /// Bytes of gradients per second.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        match self.per_byte {
            Some(per_byte) if per_byte > 0.0 => 1.0 / per_byte,
            _ => self.bytes / self.seconds.max(1e-12),
        }
    }
}

/// Sums the seconds by which buckets take longer than the fastest one of as many bytes or more, if that is
/// [`LATE`] times the fastest.
fn late(buckets: &[BucketRow]) -> f64 {
    let mut by_size: Vec<&BucketRow> = buckets.iter().collect();
    by_size.sort_by(|a, b| b.wire_bytes.total_cmp(&a.wire_bytes));
    let (mut late, mut fastest) = (0.0, f64::INFINITY);
    for bucket in by_size {
        if bucket.p50 > LATE * fastest {
            late += bucket.p50 - fastest;
        }
        fastest = fastest.min(bucket.p50);
    }
    late
}

/// Returns the median size of the buckets on the wire.
pub(crate) fn median_bytes(buckets: &[BucketRow]) -> Option<f64> {
    median(buckets.iter().map(|bucket| bucket.wire_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn costs(buckets: &[(f64, f64)]) -> BucketCosts {
        BucketCosts::of(&example::with_buckets(buckets)).unwrap()
    }

    #[test]
    fn a_wire_takes_its_time_for_each_byte() {
        let costs = costs(&[(1e6, 0.0101), (4e6, 0.0401), (4e6, 0.0401), (0.5e6, 0.0051)]);
        assert!((costs.bytes_per_second() / 1e8 - 1.0).abs() < 1e-6, "{costs:?}");
        assert!((costs.fixed.unwrap() - 1e-4).abs() < 1e-9 && costs.byte_share().unwrap() > 0.95);
        assert_eq!(costs.late, 0.0);
    }

    #[test]
    fn a_bucket_that_waits_for_a_rank_takes_longer_than_a_larger_one() {
        let costs = costs(&[(1e6, 0.041), (20e6, 0.002), (1e6, 0.001)]);
        assert!((costs.late - 0.039).abs() < 1e-9, "{costs:?}");
    }

    #[test]
    fn buckets_of_one_size_do_not_tell_bytes_from_latency() {
        let costs = costs(&[(1e6, 0.01), (1.1e6, 0.01)]);
        assert_eq!((costs.fixed, costs.byte_share()), (None, None));
        assert!((costs.bytes_per_second() - 2.1e6 / 0.02).abs() < 1e-3);
    }
}
