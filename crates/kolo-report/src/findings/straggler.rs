//! A rank that the other ranks wait for.

use kolo_run_folder::{RankTimes, RanksRow, Run, median};
use kolo_schedule::seconds::LEAST;

use super::finding::{Entry, Found, LEAST_WAITING, Severity, of_share};
use crate::analysis::{BucketCosts, Pace, SlowRank, rank_times};
use crate::units::{percent, plural, seconds};

pub(super) const ENTRY: Entry<Run> =
    Entry { name: "straggler", about: "a rank that holds the others up", find };

/// Minimum share of the waiting that the sizes of the buckets do not explain.
const LATE_PART: f64 = 0.5;

/// Ratio to the others' time from which the ranks report a rank ([`kolo_straggler`]).
const SLOW: f64 = 1.3;

fn find(run: &Run) -> Option<Found> {
    let warned = warned(run);
    if warned.as_ref().is_some_and(|found| found.0 < Severity::Notice) {
        return warned;
    }
    match (compared(run).or_else(|| inferred(run)), warned) {
        (Some((severity, what, why, remedy)), Some((_, _, note, _))) => {
            Some((severity, what, format!("{why} {note}"), remedy))
        }
        (found, note) => found.or(note),
    }
}

/// Returns true if a warning reports a slow rank, in the wording of `kolo-ddp`.
pub(super) fn is_about_straggler(warning: &str) -> bool {
    warning.starts_with("rank ")
        && (warning.contains(" times as long as the others for a shard")
            || warning.contains(" communicates slowly: "))
}

/// Looks for a warning: the ranks have compared their own clocks, and reported the slow one. Its weight is
/// that of the whole run: where the medians of all comparisons do not show the same, it is a note.
fn warned(run: &Run) -> Option<Found> {
    let warnings = &run.summary.as_ref()?.warnings;
    let reports: Vec<&str> =
        warnings.iter().map(String::as_str).filter(|text| is_about_straggler(text)).collect();
    let times = rank_times(run);
    let share = |report: &&str| rank_of(report).map_or(0.0, |rank| share_of_step(&times, rank));
    // The heaviest of several; of equals the first.
    let report = *reports.iter().rev().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let rank = rank_of(report)?;
    let more = match reports.len() {
        1 => String::new(),
        count => format!(" There were {} such warnings more.", count - 1),
    };
    let reported = format!("The ranks have compared their clocks: {report}.{more}");
    let share = share(&report);
    if times.is_empty() {
        // Rank 0 writes the figures of steps, so they do not show how long the others wait for rank 0.
        let exposed = Pace::of(run).map_or(0.0, |pace| pace.exposed_share());
        let (severity, waited) = match rank {
            0 => (
                Severity::Error,
                "Rank 0 writes these figures, so the waiting of the others is not in them.".into(),
            ),
            _ => (
                of_share(exposed).min(Severity::Warning),
                format!("Rank 0 waits for communication {} of the time.", percent(exposed)),
            ),
        };
        let why = format!("{reported} {waited}");
        return Some((severity, format!("Rank {rank} holds the others up"), why, remedy(run)));
    }
    if share >= LEAST_WAITING {
        let waited = format!("In the median step the others wait for it {} of the time.", percent(share));
        let why = format!("{reported} {waited}");
        return Some((of_share(share), format!("Rank {rank} holds the others up"), why, remedy(run)));
    }
    Some((
        Severity::Notice,
        format!("Rank {rank} has held the others up for a part of the run"),
        format!(
            "{reported} {} Over all comparisons the others wait for it {} of the median step, so the run as a \
             whole is not limited by it.",
            shown_in(run, rank),
            percent(share)
        ),
        format!("Nothing, if it happens once: another program may have used that machine. {}", remedy(run)),
    ))
}

/// Returns the rank that a warning names.
fn rank_of(warning: &str) -> Option<usize> {
    let digits: String = warning.strip_prefix("rank ")?.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns the share of a step for which the others wait for a rank: because it is busy longer, or, by the
/// median of the others, because their collectives do.
fn share_of_step(times: &[RankTimes], rank: usize) -> f64 {
    let busy = SlowRank::among(times).filter(|slow| slow.rank == rank).map_or(0.0, |slow| slow.share);
    let others = times.iter().enumerate().filter(|(other, times)| *other != rank && times.shards > 0);
    let waits = others.map(|(_, times)| match times.waited_for {
        // A wait behind computing delays no step.
        Some(peer) if peer == rank => {
            let wait = times.waited_seconds.min(times.exposed_seconds);
            wait / (times.busy_seconds() + times.exposed_seconds).max(1e-12)
        }
        _ => 0.0,
    });
    busy.max(median(waits).unwrap_or(0.0))
}

/// Describes the comparisons in which a rank was slow.
fn shown_in(run: &Run, rank: usize) -> String {
    let is_slow = |row: &&RanksRow| {
        let slow = SlowRank::among(&row.ranks).filter(|slow| slow.rank == rank);
        slow.is_some_and(|slow| slow.own >= SLOW * slow.usual)
            || share_of_step(&row.ranks, rank) >= LEAST_WAITING
    };
    let steps: Vec<u64> = run.ranks.iter().filter(is_slow).map(|row| row.step + 1).collect();
    let (count, all) = (steps.len(), plural(run.ranks.len(), "comparison"));
    match (steps.first(), steps.last()) {
        (Some(first), Some(last)) if first < last => {
            format!("{count} of {all} show it, from step {first} to step {last}.")
        }
        (Some(step), _) => format!("1 of {all} shows it, after step {step}."),
        (None, _) => format!("None of {all} shows it."),
    }
}

/// Looks for a rank that is busy so much longer than the others that they wait for it, by the comparison
/// of the ranks' clocks. This finds a slow rank 0, which itself waits for no rank, before the ranks have
/// reported it twice.
fn compared(run: &Run) -> Option<Found> {
    let slow = SlowRank::of(run)?;
    if slow.share < LEAST_WAITING || slow.waited < LEAST {
        return None;
    }
    Some((
        of_share(slow.share),
        format!("Rank {} holds the others up", slow.rank),
        format!(
            "The ranks have compared their clocks: rank {} is busy for {} with a shard, the others for {} \
             in the median, so that they wait for {} of a step, {} of the time.",
            slow.rank,
            seconds(slow.own),
            seconds(slow.usual),
            seconds(slow.waited),
            percent(slow.share)
        ),
        remedy(run),
    ))
}

/// Looks for waiting that must be for a rank: nothing is on the wire, or larger buckets take less time.
fn inferred(run: &Run) -> Option<Found> {
    let pace = Pace::of(run)?;
    let late = BucketCosts::of(run).map_or(0.0, |costs| costs.late);
    let idle = pace.rank_wait / pace.steps.len() as f64;
    let idle_part = if idle > LEAST { pace.rank_wait / pace.exposed } else { 0.0 };
    let late_part = late / pace.exposed_a_step().max(1e-12);
    if pace.exposed_share() < LEAST_WAITING || idle_part.max(late_part) < LATE_PART {
        return None;
    }
    let mut why = format!(
        "It waits for communication {} of the time, {} in the median step",
        percent(pace.exposed_share()),
        seconds(pace.exposed_a_step())
    );
    if idle_part >= LATE_PART {
        why += &format!(
            "; {} of that while no bucket is on the wire: another rank has not come so far, or the link \
             answers late",
            percent(idle_part.min(1.0))
        );
    }
    let slowest =
        run.buckets.iter().max_by(|a, b| a.p50.total_cmp(&b.p50)).filter(|_| late_part >= LATE_PART);
    if let Some(slowest) = slowest {
        why += &format!(
            "; bucket {} takes {}, though some of as many bytes or more do not: {} of a step's reductions \
             are explained by no bytes",
            slowest.bucket,
            seconds(slowest.p50),
            seconds(late)
        );
    }
    Some((
        of_share(pace.exposed_share()),
        "Rank 0 waits for another rank, not for the wire".into(),
        why + ".",
        remedy(run),
    ))
}

fn remedy(run: &Run) -> String {
    let policy = run.settings.text("straggler").unwrap_or_else(|| "warn".into());
    let shards = match policy.as_str() {
        "rebalance" => {
            "Shards move already (--straggler rebalance): give more shards (--shards), so that they can \
             move in smaller parts."
        }
        _ => "Let shards move away from it: --straggler rebalance, with more shards than workers (--shards).",
    };
    format!(
        "Look for what else that worker's machine does (CPU quota, other programs, slow storage). {shards} \
         For machines that always differ give --shares."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    const WARNING: &str = "rank 1 takes 1.6 times as long as the others for a shard: it computes for 0.310 \
                           s, they for 0.190 s; its gradients are complete up to 0.120 s later";

    #[test]
    fn a_warning_about_a_rank_is_reported_with_its_figures() {
        let mut run = example::waiting(example::run(200), 0.12);
        run.summary.as_mut().unwrap().warnings = vec!["parameter `a` had no gradient".into(), WARNING.into()];
        let finding = ENTRY.find(&run).unwrap();
        assert_eq!(
            (finding.severity, finding.what.as_str()),
            (Severity::Error, "Rank 1 holds the others up")
        );
        assert!(finding.why.contains("0.310 s") && finding.why.contains("of the time"), "{}", finding.why);
        assert!(finding.remedy.contains("--straggler rebalance, with more shards"));
        assert!(is_about_straggler("rank 2 communicates slowly: the others wait 0.300 s a step for it"));
        assert!(!is_about_straggler("rank 0 computes on x86, rank 1 on arm"));
    }

    /// The reasons that the ranks give today, as [`kolo_straggler::diagnose`] writes them.
    #[test]
    fn warnings_are_recognized_as_they_are_written() {
        use kolo_straggler::{Times, diagnose};
        let rank = |compute| Times { shards: 1, compute, ..Times::default() };
        let data = Times { data: 0.3, ..rank(0.2) };
        let waiting = Times { exposed: 0.3, waited_for: Some((kolo_comm::Rank(2), 0.3)), ..rank(0.2) };
        for times in
            [vec![rank(0.2), rank(0.4)], vec![data, rank(0.2)], vec![waiting.clone(), waiting, rank(0.2)]]
        {
            let reason = diagnose(&times).unwrap().reason;
            assert!(is_about_straggler(&reason), "{reason}");
        }
    }

    #[test]
    fn a_slow_rank_0_is_found_though_it_does_not_wait() {
        let mut run = example::run(200);
        assert_eq!(ENTRY.find(&run), None);
        run.ranks = example::comparisons(&[(0.03, 0.001), (0.01, 0.021)]);
        let finding = ENTRY.find(&run).unwrap();
        assert_eq!((finding.severity, &*finding.what), (Severity::Error, "Rank 0 holds the others up"));
        assert!(finding.why.contains("30 ms with a shard, the others for 10 ms"), "{}", finding.why);
        assert!(finding.why.contains("wait for 20 ms of a step, 64.5 % of the time"), "{}", finding.why);
        run.summary.as_mut().unwrap().warnings = vec![WARNING.replace("rank 1", "rank 0")];
        let finding = ENTRY.find(&run).unwrap();
        assert!(
            finding.why.contains("0.310 s") && finding.why.contains("wait for it 67.7 % of the time"),
            "{finding:?}"
        );
        run.summary = None;
        run.ranks = example::comparisons(&[(0.0105, 0.001), (0.01, 0.0015)]);
        assert_eq!(ENTRY.find(&run), None, "a little is no matter");
        // Far more than the usual share, and less than a time slice: the ranks would not report it either.
        run.ranks = example::comparisons(&[(0.005, 0.001), (0.003, 0.003)]);
        assert_eq!(ENTRY.find(&run), None, "2 ms are no matter");
    }

    #[test]
    fn a_rank_that_was_slow_for_a_while_is_a_note_with_its_steps() {
        let mut run =
            example::waiting(example::with_buckets(&[(1e6, 0.01), (2e6, 0.02), (2e6, 0.02)]), 0.0013);
        run.summary.as_mut().unwrap().warnings = vec![WARNING.into()];
        run.ranks = example::comparisons(&[(0.0592, 0.0), (0.0634, 0.00129), (0.0651, 0.0), (0.0641, 0.0)]);
        let first = run.ranks[0].clone();
        run.ranks.extend((4..=25).map(|n| RanksRow { step: 20 * n - 1, ..first.clone() }));
        for row in [10, 11] {
            run.ranks[row].ranks[1].compute_seconds = 0.1;
        }
        let (from, to) = (run.ranks[10].step + 1, run.ranks[11].step + 1);
        let finding = ENTRY.find(&run).unwrap();
        assert_eq!(finding.severity, Severity::Notice, "{finding:?}");
        assert!(finding.what.ends_with("for a part of the run"), "{}", finding.what);
        let shown = format!("2 of 25 comparisons show it, from step {from} to step {to}.");
        assert!(finding.why.contains(&shown), "{}", finding.why);
        // The others' medians agree with the warning.
        run.ranks.iter_mut().for_each(|row| row.ranks[1].compute_seconds = 0.1);
        run.ranks.iter_mut().for_each(|row| {
            row.ranks.iter_mut().enumerate().for_each(|(rank, times)| {
                times.exposed_seconds = if rank == 1 { 0.0 } else { 0.035 };
            });
        });
        assert_eq!(ENTRY.find(&run).unwrap().severity, Severity::Error);
        // Another rank is the slow one: it is the finding, and the warning stays readable.
        run.ranks.iter_mut().for_each(|row| row.ranks.swap(1, 3));
        let finding = ENTRY.find(&run).unwrap();
        assert_eq!((finding.severity, &*finding.what), (Severity::Error, "Rank 3 holds the others up"));
        assert!(finding.why.contains("0.310 s") && finding.why.contains("None of 25"), "{}", finding.why);
    }

    #[test]
    fn a_slow_link_is_seen_in_the_medians() {
        let mut run = example::run(200);
        run.summary.as_mut().unwrap().warnings =
            vec!["rank 2 communicates slowly: the others wait 0.300 s a step for it".into()];
        run.ranks = example::comparisons(&[(0.2, 0.3), (0.2, 0.3), (0.2, 0.0)]);
        assert_eq!(ENTRY.find(&run).unwrap().severity, Severity::Notice, "they wait for rank 0");
        run.ranks.iter_mut().flat_map(|row| &mut row.ranks).for_each(|times| {
            times.waited_for = times.waited_for.map(|_| 2);
        });
        let finding = ENTRY.find(&run).unwrap();
        assert_eq!((finding.severity, &*finding.what), (Severity::Error, "Rank 2 holds the others up"));
        assert!(finding.why.contains("60 % of the time"), "{}", finding.why);
    }

    #[test]
    fn a_late_rank_is_seen_in_the_buckets_of_a_run_that_goes_on() {
        let mut run =
            example::waiting(example::with_buckets(&[(1e6, 0.041), (20e6, 0.002), (1e6, 0.001)]), 0.04);
        run.summary = None;
        let finding = ENTRY.find(&run).unwrap();
        assert!(finding.why.contains("bucket 0 takes 41 ms"), "{}", finding.why);
        let wire = example::waiting(example::with_buckets(&[(1e6, 0.01), (4e6, 0.04), (4e6, 0.04)]), 0.04);
        assert_eq!(ENTRY.find(&wire), None, "its buckets take as long as their bytes");
        let mut idle = example::waiting(example::run(200), 0.04);
        idle.steps.iter_mut().for_each(|step| step.comm_seconds = 0.004);
        idle.buckets.clear();
        let finding = ENTRY.find(&idle).unwrap();
        assert!(finding.why.contains("while no bucket is on the wire"), "{}", finding.why);
    }
}
