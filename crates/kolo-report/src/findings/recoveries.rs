//! Workers that joined, left or died.

use kolo_run_folder::{GenerationRow, Run};

use super::finding::{Entry, Found, Severity};
use crate::units::{plural, seconds};

pub(super) const ENTRY: Entry<Run> =
    Entry { name: "recoveries", about: "generations of an elastic job after the first", find };

/// Maximum number of reasons listed.
const LISTED: usize = 3;

fn find(run: &Run) -> Option<Found> {
    let first = run.generations.first()?;
    // A resumed job begins again with generation 1.
    let later: Vec<&GenerationRow> = run.generations[1..].iter().filter(|row| row.generation > 1).collect();
    if later.is_empty() {
        return None;
    }
    let slowest = later.iter().map(|row| row.seconds_to_first_step()).fold(0.0, f64::max);
    let reasons = later
        .iter()
        .take(LISTED)
        .map(|row| format!("before step {}: {}", row.first_step, row.reason.trim_end_matches('.')));
    let more = match later.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!("; and {more} more, in the table below"),
    };
    let last = run.generations.last().unwrap_or(first).world_size;
    let (severity, workers) = if last < first.world_size {
        (
            Severity::Warning,
            format!("it began with {} and continues with {last}", plural(first.world_size, "worker")),
        )
    } else {
        (Severity::Notice, format!("it has {} at the end", plural(last, "worker")))
    };
    Some((
        severity,
        format!("The job went on with other workers {}; {workers}", times(later.len())),
        format!(
            "It did so {}{more}. From a new group until its first step was done it took {} at most.",
            reasons.collect::<Vec<_>>().join("; "),
            seconds(slowest)
        ),
        "Nothing, if that was meant. Else the log names the worker that was lost first and its last \
                 words; exit code 137 is often the system's, for want of memory."
            .into(),
    ))
}

fn times(count: usize) -> String {
    match count {
        1 => "once".into(),
        2 => "twice".into(),
        count => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn row(generation: u64, world_size: usize, reason: &str) -> GenerationRow {
        let formed_unix = generation as f64 * 10.0;
        let (reason, first_step) = (reason.into(), (generation - 1) * 50);
        GenerationRow {
            generation,
            world_size,
            reason,
            formed_unix,
            first_step,
            first_step_unix: formed_unix + 0.25,
        }
    }

    #[test]
    fn recoveries_are_listed_with_their_reasons() {
        let mut run = example::run(200);
        run.generations = vec![row(1, 2, "the job begins"), row(1, 2, "the job begins")];
        assert_eq!(ENTRY.find(&run), None);
        run.generations.push(row(2, 1, "rank 1 died"));
        let finding = ENTRY.find(&run).unwrap();
        assert!(
            finding.severity == Severity::Warning && finding.what.contains("once; it began with 2 workers")
        );
        assert!(
            finding.why.contains("before step 50: rank 1 died. From") && finding.why.contains("250 ms"),
            "{}",
            finding.why
        );
        run.generations.extend([row(3, 2, "a worker came"), row(4, 1, "x"), row(5, 2, "y")]);
        let finding = ENTRY.find(&run).unwrap();
        assert!(finding.severity == Severity::Notice && finding.why.contains("and 1 more"), "{finding:?}");
    }
}
