//! One bucket with nearly all gradients: too little work is left to hide its reduction.

use kolo_run_folder::Run;

use super::finding::{Entry, Found, LEAST_WAITING, of_share};
use crate::analysis::Pace;
use crate::units::{bytes, percent, seconds};

pub(super) const ENTRY: Entry<Run> =
    Entry { name: "huge bucket", about: "one bucket with nearly all gradients, which is waited for", find };

/// Share of all bytes from which a bucket is huge.
const HUGE: f64 = 0.6;

/// Minimum number of bytes of all buckets; fewer travel just as well in one bucket.
const LEAST_BYTES: f64 = 2e6;

fn find(run: &Run) -> Option<Found> {
    let pace = Pace::of(run)?;
    let largest = run.buckets.iter().max_by(|a, b| a.wire_bytes.total_cmp(&b.wire_bytes))?;
    let all: f64 = run.buckets.iter().map(|bucket| bucket.wire_bytes).sum();
    let part = largest.wire_bytes / all.max(1.0);
    let exposed = pace.exposed_a_step();
    if part < HUGE || all < LEAST_BYTES || pace.exposed_share() < LEAST_WAITING || largest.p50 < 0.5 * exposed
    {
        return None;
    }
    Some((
        of_share(pace.exposed_share()),
        format!("One bucket holds {} of all gradients", percent(part)),
        format!(
            "Bucket {} of {} takes {}. It begins when the last of its gradients is there, near the end of \
             the backward pass, so that little is left to hide it behind: a step computes for {} and waits \
             for {} more, {} of the time.",
            largest.bucket,
            bytes(largest.wire_bytes),
            seconds(largest.p50),
            seconds(pace.compute_a_step()),
            seconds(exposed),
            percent(pace.exposed_share())
        ),
        "Give a smaller --bucket-cap-mb, as 4: the first buckets then travel while later gradients \
                 are computed."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn one_bucket_that_is_waited_for_stands_out() {
        let sizes = [(1e6, 0.01), (40e6, 0.4), (1e6, 0.01)];
        let finding = ENTRY.find(&example::waiting(example::with_buckets(&sizes), 0.3)).unwrap();
        assert!(finding.what.contains("95.2 %") && finding.why.contains("Bucket 1 of 40 MB"), "{finding:?}");
        assert_eq!(ENTRY.find(&example::with_buckets(&sizes)), None, "nobody waits");
        let even = [(1e6, 0.01), (20e6, 0.2), (20e6, 0.2), (1e6, 0.01)];
        assert_eq!(ENTRY.find(&example::waiting(example::with_buckets(&even), 0.3)), None);
    }
}
