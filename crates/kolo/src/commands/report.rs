//! `kolo report`: writes one page about runs.

use std::path::{Path, PathBuf};

use clap::Args;
use kolo_report::{Error, PredictedStep, Report as Page};
use serde::Deserialize;

use kolo::Failure;
use kolo_program::output::print;

/// Write one page about runs: what limits them, their curves, and where their time goes.
///
/// The page is one HTML file that needs nothing else, for one run or for several side by side. A run that
/// goes on has one, too. What stands out is also printed.
#[derive(Args)]
pub(crate) struct Report {
    /// Run folders, as `kolo train` has made them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The file to write; an older report there is replaced, any other file is not
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// What `kolo plan step --json` has printed, with `--workers` as many as a run has: what was predicted
    /// stands beside what was measured
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
}

/// Fields read from the output of `kolo plan step --json`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Plan {
    Steps(Vec<PlannedStep>),
    /// Output with `--advise`.
    Advised {
        steps: Vec<PlannedStep>,
    },
}

#[derive(Deserialize)]
struct PlannedStep {
    workers: usize,
    seconds: f64,
    exposed: f64,
    straggling: f64,
}

impl Report {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut report = Page::read(&self.runs).map_err(failure)?;
        if let Some(file) = &self.plan {
            report.predicted = read(file)?;
        }
        report.write(&self.out).map_err(failure)?;
        let lines: String = report.headlines().iter().map(|line| format!("{line}\n")).collect();
        print(&format!("{lines}{}\n", self.out.display()))
    }
}

fn read(file: &Path) -> Result<Vec<PredictedStep>, Failure> {
    let fail = |problem: String| Failure::input(format!("--plan {}: {problem}", file.display()));
    let text = kolo_durable::read_to_string(file).map_err(|e| fail(e.to_string()))?;
    let (Plan::Steps(steps) | Plan::Advised { steps }) = serde_json::from_str(&text)
        .map_err(|_| fail("this is not what `kolo plan step --json` prints".into()))?;
    let predicted = |step: PlannedStep| PredictedStep {
        workers: step.workers,
        seconds: step.seconds + step.straggling,
        exposed: step.exposed,
    };
    Ok(steps.into_iter().map(predicted).collect())
}

/// Unreadable folders and failed writes are failures of the work; other errors are wrong input.
fn failure(error: Error) -> Failure {
    match error {
        Error::Folder(kolo_run_folder::Error::Read { .. }) | Error::Write { .. } => Failure::work(error),
        _ => Failure::input(error),
    }
}
