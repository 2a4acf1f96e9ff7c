//! Buckets so small that the fixed cost of a reduction dominates.

use kolo_run_folder::Run;

use super::finding::{Entry, Found, of_share};
use crate::analysis::{BucketCosts, Pace, median_bytes};
use crate::units::{bytes, count, percent, seconds};

pub(super) const ENTRY: Entry<Run> =
    Entry { name: "small buckets", about: "many buckets that take as long whatever their bytes", find };

const LEAST_BUCKETS: usize = 16;

/// Maximum median size of the buckets, in bytes.
const SMALL: f64 = 256.0 * 1024.0;

/// Minimum share of the reductions' time that does not depend on the bytes.
const LEAST_FIXED_SHARE: f64 = 0.4;

/// Minimum duration of the reductions, as a share of a step.
const LEAST_SHARE: f64 = 0.02;

fn find(run: &Run) -> Option<Found> {
    let (pace, costs) = (Pace::of(run)?, BucketCosts::of(run)?);
    let (buckets, middle) = (run.buckets.len(), median_bytes(&run.buckets)?);
    if buckets < LEAST_BUCKETS || middle > SMALL || costs.seconds < LEAST_SHARE * pace.median {
        return None;
    }
    let fixed_share = 1.0 - costs.byte_share().unwrap_or(0.0);
    if fixed_share < LEAST_FIXED_SHARE {
        return None;
    }
    let fixed = costs.fixed.unwrap_or(costs.seconds / buckets as f64);
    let cap = match run.settings.text("bucket_cap_mb") {
        Some(cap) => format!("With --bucket-cap-mb {cap} there"),
        None => "There".into(),
    };
    Some((
        of_share(pace.exposed_share()),
        format!("The buckets are too small: {} of {} each", count(buckets), bytes(middle)),
        format!(
            "{cap} are {} reductions a step for {}. One takes some {} whatever its bytes, {} of what all of \
             them take ({} a step, besides {} of computing); workers wait for them {} of the time.",
            count(buckets),
            bytes(costs.bytes),
            seconds(fixed),
            percent(fixed_share),
            seconds(costs.seconds),
            seconds(pace.compute_a_step()),
            percent(pace.exposed_share())
        ),
        "Leave --bucket-cap-mb out (25 MiB, over sockets 4), or give a larger one: the same bytes \
                 then pay for a few reductions only."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::findings::Severity;

    fn many(count: usize, time: impl Fn(f64) -> f64) -> Run {
        let sizes = (0..count).map(|n| [16e3, 40e3, 64e3][n % 3]);
        example::with_buckets(&sizes.map(|bytes| (bytes, time(bytes))).collect::<Vec<_>>())
    }

    #[test]
    fn many_buckets_with_a_fixed_cost_stand_out() {
        let run = many(90, |bytes| 1e-4 + bytes / 10e9);
        let finding = ENTRY.find(&run).unwrap();
        assert!(finding.what.contains("90 of 40 kB each"), "{}", finding.what);
        assert!(finding.why.contains("some 100 µs"), "{}", finding.why);
        assert_eq!(ENTRY.find(&example::waiting(run, 0.01)).unwrap().severity, Severity::Error);
    }

    #[test]
    fn few_buckets_and_those_that_a_wire_binds_do_not() {
        assert_eq!(ENTRY.find(&many(9, |_| 1e-4)), None);
        assert_eq!(ENTRY.find(&many(90, |bytes| bytes / 1e8)), None);
        assert_eq!(ENTRY.find(&many(90, |_| 1e-6)), None, "they cost nothing");
    }
}
