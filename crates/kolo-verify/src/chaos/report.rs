//! The output of `kolo chaos`: a line for each run, then the totals.

use std::path::Path;

use kolo_comm::schedule::words::counted;
use kolo_program::Failure;
use kolo_program::output::{note, print_json, say};
use kolo_run_folder::percentile;
use serde::Serialize;

use super::inject::Injected;
use super::job::{ChaosJob, Run, RunVerdict};
use super::record::{Recovery, RunRecord};

fn with(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" ({name})") }
}

/// All runs so far.
#[derive(Serialize)]
pub(super) struct Report {
    /// True to print JSON at the end.
    #[serde(skip)]
    json: bool,
    options: Vec<String>,
    workers: usize,
    steps: u64,
    undisturbed_seconds: f64,
    runs: Vec<Row>,
    lost: usize,
    failed: usize,
    hung: usize,
    recoveries: Vec<Recoveries>,
}

#[derive(Serialize)]
struct Row {
    seed: u64,
    /// Additions of the job to the one that was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    job: String,
    hits: Vec<Injected>,
    generations: u64,
    seconds: f64,
    verdict: RunVerdict,
    /// The run folder, kept if the run did not end as it should.
    folder: Option<String>,
}

/// Recovery times from faults of one kind: seconds from the fault to the next step done.
#[derive(Debug, PartialEq, Serialize)]
struct Recoveries {
    fault: &'static str,
    hits: usize,
    /// Further faults after which the job was ended before a next step.
    job_ended: usize,
    p50_seconds: f64,
    p95_seconds: f64,
    max_seconds: f64,
}

impl Report {
    pub(super) fn begin(job: &ChaosJob, undisturbed: &RunRecord, json: bool) -> Self {
        let report = Report {
            json,
            options: job.program.words().iter().map(|option| option.to_string_lossy().into_owned()).collect(),
            workers: job.workers(),
            steps: undisturbed.steps,
            undisturbed_seconds: undisturbed.train_seconds,
            runs: Vec::new(),
            lost: 0,
            failed: 0,
            hung: 0,
            recoveries: Vec::new(),
        };
        report.undisturbed(job, undisturbed);
        report
    }

    /// Prints the line of an undisturbed run.
    pub(super) fn undisturbed(&self, job: &ChaosJob, undisturbed: &RunRecord) {
        self.line(&format!(
            "undisturbed{}: {}, {} in {:.1} s, weights {} {}",
            with(&job.name),
            counted(job.workers(), "worker"),
            counted(undisturbed.steps, "step"),
            undisturbed.train_seconds,
            if job.program.is_own() { "fingerprint" } else { "sha256" },
            undisturbed.weights
        ));
    }

    /// Prints a line on standard output, which belongs to JSON where the user wants that.
    fn line(&self, words: &str) {
        if self.json { note(words) } else { say!("{words}") }
    }

    /// Prints a run's line. Its files are in `folder` if it did not end as it should.
    pub(super) fn add(&mut self, seed: u64, job: &str, run: Run, folder: Option<&Path>) {
        let Run { hits, generations, seconds, verdict } = run;
        let faults = if hits.is_empty() { "nothing".into() } else { join(&hits, describe) };
        let said = match &verdict {
            RunVerdict::Same => "the same bits".to_string(),
            RunVerdict::Lost(what) => format!("LOST: {what}"),
            RunVerdict::Failed(how) => format!("FAILED: {how}"),
            RunVerdict::Hung => "HUNG".into(),
        };
        let job_name = with(job);
        self.line(&format!(
            "seed {seed}{job_name}: {faults}; {}, {seconds:.1} s; {said}",
            counted(generations, "generation")
        ));
        match verdict {
            RunVerdict::Same => {}
            RunVerdict::Lost(_) => self.lost += 1,
            RunVerdict::Failed(_) => self.failed += 1,
            RunVerdict::Hung => self.hung += 1,
        }
        let folder = folder.map(|folder| folder.display().to_string());
        self.runs.push(Row { seed, job: job.to_string(), hits, generations, seconds, verdict, folder });
    }

    /// Prints the totals; returns an error if a run did not end as it should.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.recoveries = self.recoveries();
        self.line(&format!(
            "{}: {} lost something, {} failed, {} hung",
            counted(self.runs.len(), "run"),
            self.lost,
            self.failed,
            self.hung
        ));
        for recovery in &self.recoveries {
            self.line(&recovery.words());
        }
        if self.json {
            print_json(&self)?;
        }
        let bad: Vec<&Row> = self.runs.iter().filter(|row| row.verdict != RunVerdict::Same).collect();
        if bad.is_empty() {
            return Ok(());
        }
        let seed = |row: &&Row| format!("{} ({})", row.seed, row.folder.as_deref().unwrap_or_default());
        Err(Failure::work(format!(
            "{} did not go well: {} {}",
            counted(bad.len(), "run"),
            if bad.len() == 1 { "seed" } else { "seeds" },
            join(&bad, seed)
        )))
    }

    fn recoveries(&self) -> Vec<Recoveries> {
        let hits = || self.runs.iter().flat_map(|row| &row.hits);
        let of = |fault: &'static str| {
            let those = hits().filter(|injected| injected.hit.fault.name() == fault);
            Recoveries::of(fault, those.filter_map(|injected| injected.recovery))
        };
        ["kill", "kill in an update", "stop", "leave", "cut", "packets lost", "link down"]
            .map(of)
            .into_iter()
            .filter(|recovery| recovery.hits + recovery.job_ended > 0)
            .collect()
    }
}

impl Recoveries {
    fn of(fault: &'static str, ends: impl Iterator<Item = Recovery>) -> Self {
        let (mut seconds, mut job_ended) = (Vec::new(), 0);
        for end in ends {
            match end {
                Recovery::Seconds(later) => seconds.push(later),
                Recovery::JobEnded => job_ended += 1,
            }
        }
        let [p50_seconds, p95_seconds, max_seconds] =
            [50.0, 95.0, 100.0].map(|p| percentile(seconds.iter().copied(), p).unwrap_or(0.0));
        Recoveries { fault, hits: seconds.len(), job_ended, p50_seconds, p95_seconds, max_seconds }
    }

    /// Returns the line of the totals.
    fn words(&self) -> String {
        let Recoveries { fault, hits, job_ended, p50_seconds, p95_seconds, max_seconds } = self;
        let times = |count: usize| format!("{count:3} {}", if count == 1 { "time" } else { "times" });
        let recovered = (*hits > 0).then(|| {
            format!(
                "{}; the next step was done after {p50_seconds:.2} s (p50), {p95_seconds:.2} s (p95), \
                 {max_seconds:.2} s (most)",
                times(*hits)
            )
        });
        let ended =
            (*job_ended > 0).then(|| format!("{}; the job was ended before a next step", times(*job_ended)));
        let parts: Vec<String> = recovered.into_iter().chain(ended).collect();
        format!("{fault:17}: {}", parts.join("; "))
    }
}

fn describe(injected: &Injected) -> String {
    let (hit, percent) = (&injected.hit, 100.0 * injected.hit.at);
    let end = match (&injected.missed, injected.recovery) {
        (Some(why), _) => format!(" not done: {why}"),
        (None, Some(Recovery::Seconds(seconds))) => format!(", a step {seconds:.2} s later"),
        (None, Some(Recovery::JobEnded)) => " (no step before the job was ended)".into(),
        (None, None) => String::new(),
    };
    format!("{hit} at {percent:.0} %{end}")
}

fn join<T>(all: &[T], text: impl Fn(&T) -> String) -> String {
    all.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_ended_is_counted_apart() {
        let of = |ends: &[Recovery]| Recoveries::of("kill", ends.iter().copied());
        let both = of(&[Recovery::Seconds(0.25), Recovery::JobEnded, Recovery::Seconds(0.75)]);
        assert_eq!((both.hits, both.job_ended, both.max_seconds), (2, 1, 0.75));
        let words = both.words();
        assert!(words.contains("2 times; the next step") && words.contains("0.75 s (most)"), "{words}");
        assert!(words.ends_with("1 time; the job was ended before a next step"), "{words}");
        let words = of(&[Recovery::JobEnded]).words();
        assert!(words.starts_with("kill") && !words.contains("0.00 s"), "{words}");
        assert!(!of(&[Recovery::Seconds(1.0)]).words().contains("ended"));
    }
}
