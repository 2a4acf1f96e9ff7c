//! What the user sees: a line a run, then the sums.

use std::path::Path;

use serde::Serialize;

use super::check::Ended;
use super::deal::Dealt;
use super::job::{Job, Run, Verdict};
use crate::fail::Failure;
use kolo_train::percentile;

/// All runs so far.
#[derive(Serialize)]
pub(super) struct Report {
    options: Vec<String>,
    workers: usize,
    steps: u64,
    undisturbed_seconds: f64,
    runs: Vec<Row>,
    lost: usize,
    failed: usize,
    hung: usize,
    recoveries: Vec<Recovery>,
}

#[derive(Serialize)]
struct Row {
    seed: u64,
    hits: Vec<Dealt>,
    generations: u64,
    seconds: f64,
    verdict: Verdict,
    /// Kept where the verdict is a bad one.
    folder: Option<String>,
}

/// Seconds from a hit to the next step done.
#[derive(Serialize)]
struct Recovery {
    deed: &'static str,
    hits: usize,
    p50_seconds: f64,
    p95_seconds: f64,
    max_seconds: f64,
}

impl Report {
    pub(super) fn begin(job: &Job, undisturbed: &Ended) -> Self {
        let seconds = undisturbed.train_seconds;
        println!(
            "undisturbed: {} workers, {} steps in {seconds:.1} s, weights sha256 {}",
            job.nproc, undisturbed.steps, undisturbed.weights_sha256
        );
        Report {
            options: job.options.iter().map(|option| option.to_string_lossy().into_owned()).collect(),
            workers: job.nproc,
            steps: undisturbed.steps,
            undisturbed_seconds: seconds,
            runs: Vec::new(),
            lost: 0,
            failed: 0,
            hung: 0,
            recoveries: Vec::new(),
        }
    }

    /// Tells of a run, whose files have been kept in `folder` if it has not gone well.
    pub(super) fn add(&mut self, seed: u64, run: Run, folder: Option<&Path>) {
        let Run { hits, generations, seconds, verdict } = run;
        let deeds = if hits.is_empty() { "nothing".into() } else { join(&hits, describe) };
        let said = match &verdict {
            Verdict::Same => "the same bits".to_string(),
            Verdict::Lost(what) => format!("LOST: {what}"),
            Verdict::Failed(how) => format!("FAILED: {how}"),
            Verdict::Hung => "HUNG".into(),
        };
        println!("seed {seed}: {deeds}; {generations} generations, {seconds:.1} s; {said}");
        match verdict {
            Verdict::Same => {}
            Verdict::Lost(_) => self.lost += 1,
            Verdict::Failed(_) => self.failed += 1,
            Verdict::Hung => self.hung += 1,
        }
        let folder = folder.map(|folder| folder.display().to_string());
        self.runs.push(Row { seed, hits, generations, seconds, verdict, folder });
    }

    /// The sums; an error where a run has not gone well.
    pub(super) fn end(mut self, json: Option<&Path>) -> Result<(), Failure> {
        self.recoveries = self.recoveries();
        println!(
            "{} runs: {} lost something, {} failed, {} hung",
            self.runs.len(),
            self.lost,
            self.failed,
            self.hung
        );
        for recovery in &self.recoveries {
            let Recovery { deed, hits, p50_seconds, p95_seconds, max_seconds } = recovery;
            println!(
                "{deed:5}: {hits:3} times; the next step was done after {p50_seconds:.2} s (p50), {p95_seconds:.2} s (p95), \
                 {max_seconds:.2} s (most)"
            );
        }
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(&self).map_err(Failure::work)?;
            std::fs::write(path, text + "\n")
                .map_err(|e| Failure::work(format!("{}: {e}", path.display())))?;
        }
        let bad: Vec<&Row> = self.runs.iter().filter(|row| row.verdict != Verdict::Same).collect();
        if bad.is_empty() {
            return Ok(());
        }
        let seed = |row: &&Row| format!("{} ({})", row.seed, row.folder.as_deref().unwrap_or_default());
        Err(Failure::work(format!("{} runs did not go well: seeds {}", bad.len(), join(&bad, seed))))
    }

    fn recoveries(&self) -> Vec<Recovery> {
        let hits = || self.runs.iter().flat_map(|row| &row.hits);
        let of = |deed: &'static str| {
            let those = hits().filter(|dealt| dealt.hit.deed.name() == deed);
            let seconds: Vec<f64> = those.filter_map(|dealt| dealt.recovery_seconds).collect();
            let [p50_seconds, p95_seconds, max_seconds] =
                [50.0, 95.0, 100.0].map(|p| percentile(&seconds, p));
            Recovery { deed, hits: seconds.len(), p50_seconds, p95_seconds, max_seconds }
        };
        ["kill", "stop", "leave", "cut"].map(of).into_iter().filter(|recovery| recovery.hits > 0).collect()
    }
}

/// A hit in words.
fn describe(dealt: &Dealt) -> String {
    let (hit, percent) = (&dealt.hit, 100.0 * dealt.hit.at);
    let end = match (&dealt.missed, dealt.recovery_seconds) {
        (Some(why), _) => format!(" not done: {why}"),
        (None, Some(seconds)) => format!(", a step {seconds:.2} s later"),
        (None, None) => String::new(),
    };
    format!("{hit} at {percent:.0} %{end}")
}

fn join<T>(all: &[T], text: impl Fn(&T) -> String) -> String {
    all.iter().map(text).collect::<Vec<_>>().join(", ")
}
