//! `kolo report`: writes one page about runs.

use std::path::{Path, PathBuf};

use clap::Args;
use kolo_report::findings::Finding;
use kolo_report::{Error, PredictedStep, Report as Page};
use serde::{Deserialize, Serialize};

use kolo::Failure;
use kolo_program::output::{in_line, print, print_json};

/// Write one page about runs: what limits them, their curves, and where their time goes.
///
/// The page is one HTML file that needs no other file. It shows one run, or several side by side, also
/// while they train. Kolo prints the main findings as well.
#[derive(Args)]
pub(crate) struct Report {
    /// Run folders that `kolo train` has written
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The file to write. Kolo replaces an older report, but no other file [default: report.html in the run's
    /// folder; of several runs, here]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// File with the output of `kolo plan step --json` for the run's number of workers. The page shows its
    /// prediction beside the measurement
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Print JSON: the path of the page, and the findings of each run
    #[arg(long)]
    json: bool,
}

/// Default name of the page.
const REPORT: &str = "report.html";

/// Output of `kolo report --json`.
#[derive(Serialize)]
struct Printed<'a> {
    report: &'a Path,
    runs: Vec<PrintedRun<'a>>,
}

#[derive(Serialize)]
struct PrintedRun<'a> {
    run: &'a str,
    folder: &'a Path,
    findings: &'a [Finding],
    /// Sentences about missing, incomplete or repeated parts of its files.
    remarks: &'a [String],
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
        let out = self.out.unwrap_or_else(|| match &*self.runs {
            [run] => run.join(REPORT),
            _ => REPORT.into(),
        });
        report.write(&out).map_err(failure)?;
        if self.json {
            let runs = report.runs.iter().map(|(run, findings)| PrintedRun {
                run: &run.name,
                folder: &run.folder,
                findings,
                remarks: &run.remarks,
            });
            return print_json(&Printed { report: &out, runs: runs.collect() });
        }
        let lines: String = report.headlines().iter().map(|line| in_line(line) + "\n").collect();
        print(&format!("{lines}report: {}\n", in_line(out.display())))
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
