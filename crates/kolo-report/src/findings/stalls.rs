//! Occasional steps that take many times as long as the others.

use kolo_run_folder::{Run, StepRow};

use super::finding::{Entry, Found, of_share};
use crate::analysis::Pace;
use crate::units::{count, percent, plural, seconds};

pub(super) const ENTRY: Entry<Run> =
    Entry { name: "stalls", about: "a few steps that take many times as long as the others", find };

/// Minimum duration of a stall, in median steps.
const STALL: f64 = 4.0;

/// Minimum share of time lost in stalls.
const LEAST_SHARE: f64 = 0.05;

fn find(run: &Run) -> Option<Found> {
    let pace = Pace::of(run)?;
    // The finding about recoveries covers the wait of a generation's first step.
    let is_first = |step: &StepRow| run.generations.iter().any(|row| step.step.abs_diff(row.first_step) <= 1);
    let stalls: Vec<&StepRow> =
        pace.steps.iter().filter(|step| step.seconds > STALL * pace.median && !is_first(step)).collect();
    let lost: f64 = stalls.iter().map(|step| step.seconds - pace.median).sum();
    let share = lost / pace.seconds;
    if share < LEAST_SHARE {
        return None;
    }
    let waited: f64 = stalls.iter().map(|step| step.exposed_seconds).sum();
    let longest = stalls.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
    let is_waiting = waited > 0.5 * lost;
    let cause = if is_waiting {
        "another rank, or the wire, stops now and then"
    } else {
        "rank 0 itself stops now and then"
    };
    Some((
        of_share(share),
        format!("Stalls cost {} of the time: {cause}", percent(share)),
        format!(
            "{} of {} took more than {STALL} times the median of {}, {} in all; the longest is step {} with \
             {}. {} of that was waiting for communication.",
            count(stalls.len()),
            plural(pace.steps.len(), "step"),
            seconds(pace.median),
            seconds(lost),
            longest.step,
            seconds(longest.seconds),
            percent((waited / lost).min(1.0))
        ),
        format!(
            "Look for a CPU quota, other programs, swapping or slow storage on {}. Workers whose stalls \
             come again and again are named in the log after some 200 steps; --straggler rebalance then \
             moves shards away from them.",
            if is_waiting { "the other workers' machines" } else { "the machine of rank 0" }
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn stalls_of_rank_0_differ_from_its_waiting() {
        let mut run = example::run(200);
        for step in (20..200).step_by(30) {
            run.steps[step].seconds += 0.6;
        }
        let own = ENTRY.find(&run).unwrap();
        assert!(own.what.ends_with("rank 0 itself stops now and then"), "{}", own.what);
        assert!(own.why.starts_with("6 of 194 steps"), "{}", own.why);
        for step in (20..200).step_by(30) {
            run.steps[step].exposed_seconds += 0.6;
        }
        assert!(ENTRY.find(&run).unwrap().what.contains("another rank"));
    }

    #[test]
    fn the_first_step_of_a_generation_is_no_stall() {
        let mut run = example::run(200);
        run.steps[50].seconds = 3.0;
        assert!(ENTRY.find(&run).is_some());
        run.generations = vec![kolo_run_folder::GenerationRow {
            generation: 2,
            world_size: 1,
            reason: "rank 1 died".into(),
            formed_unix: 0.0,
            first_step: 50,
            first_step_unix: 3.0,
        }];
        assert_eq!(ENTRY.find(&run), None);
    }
}
