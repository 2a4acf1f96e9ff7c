//! Writes a report on run folders: `cargo run -p kolo-report --example report -- report.html RUN...`.

use std::path::PathBuf;
use std::process::ExitCode;

use kolo_report::Report;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(out) = arguments.next() else {
        eprintln!("give the file to write, and one run folder or more");
        return ExitCode::FAILURE;
    };
    let folders: Vec<PathBuf> = arguments.collect();
    match Report::read(&folders).and_then(|report| report.write(&out).map(|()| report)) {
        Ok(report) => {
            report.headlines().iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
