//! `kolo report`: one page about runs.

use std::path::PathBuf;

use clap::Args;
use kolo_report::{Error, Report as Page};

use crate::output::print;
use kolo::Failure;

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
}

impl Report {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let report = Page::read(&self.runs).map_err(failure)?;
        report.write(&self.out).map_err(failure)?;
        let lines: String = report.headlines().iter().map(|line| format!("{line}\n")).collect();
        print(&format!("{lines}{}\n", self.out.display()))
    }
}

/// A disk that is full is nobody's wrong input.
fn failure(error: Error) -> Failure {
    match error {
        Error::Folder(kolo_run_folder::Error::Read { .. }) | Error::Write { .. } => Failure::work(error),
        _ => Failure::input(error),
    }
}
