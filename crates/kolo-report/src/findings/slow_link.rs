//! A link on which communication takes longer than the work that could hide it.

use kolo_run_folder::Run;

use super::finding::{Entry, Found, LEAST_WAITING, of_share};
use crate::analysis::{BucketCosts, Pace};
use crate::units::{bytes, percent, rate, seconds};

pub(super) const ENTRY: Entry<Run> = Entry {
    name: "slow link",
    about: "communication that is waited for, and takes its time for each byte",
    find,
};

/// Minimum share of the reductions' time that is proportional to the bytes.
const LEAST_BYTE_SHARE: f64 = 0.6;

/// Maximum spread: without disturbances a wire takes about as long each time.
const MOST_SPREAD: f64 = 3.0;

fn find(run: &Run) -> Option<Found> {
    let pace = Pace::of(run)?;
    if pace.wire_wait_share() < LEAST_WAITING {
        return None;
    }
    let costs = BucketCosts::of(run)?;
    // Buckets that take longer than others of as many bytes wait for another rank.
    if costs.late > 0.5 * pace.exposed_a_step()
        || costs.byte_share().is_some_and(|share| share < LEAST_BYTE_SHARE)
    {
        return None;
    }
    if costs.spread > MOST_SPREAD {
        return None;
    }
    // If the reductions do not account for the waiting, it has another cause, too.
    if costs.seconds < 0.5 * pace.exposed_a_step() {
        return None;
    }
    Some((
        of_share(pace.wire_wait_share()),
        format!(
            "The link between the workers is too slow: workers wait for it {} of the time",
            percent(pace.wire_wait_share())
        ),
        why(run, &pace, &costs),
        remedy(run),
    ))
}

fn why(run: &Run, pace: &Pace<'_>, costs: &BucketCosts) -> String {
    let per_second = costs.bytes_per_second();
    let mut text = format!(
        "A step computes for {} and waits for {} more. The reductions of its {} take {}, ",
        seconds(pace.compute_a_step()),
        seconds(pace.exposed_a_step()),
        bytes(costs.bytes),
        seconds(costs.seconds)
    );
    text += &match costs.byte_share() {
        Some(share) => {
            format!("{} of which goes with the bytes: {} of gradients", percent(share), rate(per_second))
        }
        None => format!("{} of gradients", rate(per_second)),
    };
    // Each rank sends and receives 2 (n − 1) / n times the bytes that it reduces.
    if let Some(workers) = run.world_size().filter(|workers| *workers > 1) {
        let on_wire = per_second * 2.0 * (workers as f64 - 1.0) / workers as f64;
        text += &format!(", which is {} through the link of each of {workers} workers", rate(on_wire));
    }
    if let Some(transport) = run.summary.as_ref().and_then(|summary| summary.transport.as_ref()) {
        text += &format!(" ({transport})");
    }
    text + "."
}

fn remedy(run: &Run) -> String {
    let reduction = run.settings.text("reduction").unwrap_or_else(|| "sum".into());
    let fewer_bytes = match reduction.as_str() {
        "sum" => "send fewer bytes (--reduction bf16, or powersgd:rank=4)".into(),
        other => format!("send fewer bytes than with --reduction {other}"),
    };
    format!(
        "Check that the fast network is used (KOLO_IFACE) and that nothing else loads it. Else \
         {fewer_bytes}, synchronize more rarely (--sync diloco:H=50 or local:H=8), or give each step more \
         work (--accumulate, --batch-size). `kolo plan step` says what a faster link would bring."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::findings::Severity;

    #[test]
    fn the_rate_of_the_link_is_reported() {
        // 12.5 MB/s: 100 Mbit/s.
        let sizes: Vec<(f64, f64)> =
            [0.4e6, 1e6, 1e6, 0.2e6].map(|bytes| (bytes, 2e-4 + bytes / 12.5e6)).into();
        let run = example::waiting(example::with_buckets(&sizes), 0.18);
        let finding = ENTRY.find(&run).unwrap();
        assert_eq!(finding.severity, Severity::Error);
        let mut late = run.clone();
        late.steps.iter_mut().for_each(|step| step.comm_seconds -= 0.07);
        let share = |run: &Run| percent(Pace::of(run).unwrap().wire_wait_share());
        let headline = ENTRY.find(&late).unwrap().what;
        assert!(headline.contains(&share(&late)) && share(&late) != share(&run), "{headline}");
        assert!(finding.why.contains("100 Mbit/s through the link of each of 2 workers"), "{}", finding.why);
        assert!(finding.why.contains("2.6 MB") && finding.remedy.contains("powersgd"), "{finding:?}");
    }

    #[test]
    fn a_late_rank_and_hidden_communication_are_no_slow_link() {
        let late =
            example::waiting(example::with_buckets(&[(1e6, 0.041), (20e6, 0.002), (1e6, 0.001)]), 0.04);
        assert_eq!(ENTRY.find(&late), None);
        let mut disturbed = example::waiting(example::with_buckets(&[(1e6, 0.01), (2e6, 0.02)]), 0.03);
        assert!(ENTRY.find(&disturbed).is_some());
        disturbed.buckets.iter_mut().for_each(|bucket| bucket.p95 = 10.0 * bucket.p50);
        assert_eq!(ENTRY.find(&disturbed), None, "it does not take as long each time");
        let hidden = example::with_buckets(&[(1e6, 0.01), (2e6, 0.02)]);
        assert_eq!(ENTRY.find(&hidden), None);
    }
}
