//! Reads runs, finds what limits them, and writes the report.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use kolo_run_folder::{RANGE_TABLE, Run};

use crate::error::Error;
use crate::findings::{Finding, findings};
use crate::page::{self, BEGINNING};
use crate::predicted::{Outcome, PredictedStep};

/// A report on one or several runs.
#[derive(Clone, Debug)]
pub struct Report {
    /// Each run with its findings.
    pub runs: Vec<(Run, Vec<Finding>)>,
    /// Predictions for some numbers of workers; may be empty.
    pub predicted: Vec<PredictedStep>,
}

impl Report {
    /// Reads run folders and looks for findings.
    ///
    /// # Errors
    ///
    /// A folder belongs to no run or to a range test, is given twice, or has a file that cannot be parsed.
    pub fn read(folders: &[PathBuf]) -> Result<Self, Error> {
        if folders.is_empty() {
            return Err(Error::NoRuns);
        }
        let mut runs: Vec<Run> = Vec::new();
        for folder in folders {
            let place = |folder: &Path| folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
            if runs.iter().any(|run| place(&run.folder) == place(folder)) {
                return Err(Error::Twice { folder: folder.clone() });
            }
            let run = Run::read(folder)?;
            if run.steps.is_empty() && folder.join(RANGE_TABLE).exists() {
                return Err(Error::RangeTest { folder: folder.clone() });
            }
            runs.push(run);
        }
        make_names_unique(&mut runs);
        let found = |run: Run| {
            let found = findings(&run);
            (run, found)
        };
        Ok(Report { runs: runs.into_iter().map(found).collect(), predicted: Vec::new() })
    }

    /// Returns the page: one HTML file that needs no other file.
    pub fn html(&self) -> String {
        page::html(&self.runs, &self.predicted)
    }

    /// Writes the page to a file atomically. An older report there is replaced.
    ///
    /// # Errors
    ///
    /// The file exists and is no report, or it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let fail = |source| Error::Write { path: path.to_owned(), source };
        if !may_replace(path).map_err(fail)? {
            return Err(Error::NotAReport { path: path.to_owned() });
        }
        let name = path.file_name().ok_or_else(|| fail(ErrorKind::IsADirectory.into()))?;
        let draft = path.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        kolo_durable::replace_through(&draft, path, self.html().as_bytes()).map_err(fail)
    }

    /// Returns one line per finding, the most severe first, one per remark about the run's files, and one about
    /// the outcome of a prediction. If there are several runs, each line begins with the run's name.
    pub fn headlines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (run, found) in &self.runs {
            let name = if self.runs.len() > 1 { format!("{}: ", run.name) } else { String::new() };
            if found.is_empty() {
                lines.push(format!("{name}nothing stands out"));
            }
            let line = |finding: &Finding| {
                format!("{name}{}: {}", page::word(finding.severity).to_lowercase(), finding.what)
            };
            lines.extend(found.iter().map(line));
            lines.extend(run.remarks.iter().map(|remark| format!("{name}note: {remark}")));
            let outcome = Outcome::of(run, &self.predicted);
            lines.extend(outcome.map(|outcome| format!("{name}{}", outcome.sentence())));
        }
        lines
    }
}

/// Returns true if writing loses nothing: there is no file, or it is a report.
fn may_replace(path: &Path) -> Result<bool, std::io::Error> {
    let file = match kolo_durable::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
        opened => opened?,
    };
    let mut start = Vec::new();
    file.take(BEGINNING.len() as u64).read_to_end(&mut start)?;
    Ok(start == BEGINNING.as_bytes())
}

/// Names runs by their paths if several folders have the same name.
fn make_names_unique(runs: &mut [Run]) {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for run in runs {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = run.folder.display().to_string();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::example;

    fn report() -> Report {
        Report { runs: vec![(example::run(30), Vec::new())], predicted: Vec::new() }
    }

    #[test]
    fn only_reports_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        report().write(&path).unwrap();
        report().write(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
        fs::write(&path, "mine").unwrap();
        let error = report().write(&path).unwrap_err().to_string();
        assert!(error.contains("report.html exists and is no report"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        let error = report().write(&folder.path().join("no/report.html")).unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains("--out"), "{error}");
    }

    #[test]
    fn steps_that_are_written_twice_are_told_beside_the_findings() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.toml"), "").unwrap();
        let line = "{\"step\":0,\"epoch\":0,\"loss\":1,\"images\":8,\"learning_rate\":0.1,\"seconds\":1,\
                    \"comm_seconds\":0,\"exposed_comm_seconds\":0}\n";
        let headlines = |text: &str| {
            fs::write(folder.path().join("steps.jsonl"), text).unwrap();
            Report::read(&[folder.path().into()]).unwrap().headlines()
        };
        let twice = "note: 1 step is in steps.jsonl more than once; the last lines count.".to_string();
        assert!(headlines(&line.repeat(2)).contains(&twice), "{:?}", headlines(&line.repeat(2)));
        assert!(!headlines(line).contains(&twice));
    }

    #[test]
    fn runs_have_names_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let places = ["a/run", "b/run", "c"].map(|name| folder.path().join(name));
        for place in &places {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join("config.toml"), "").unwrap();
        }
        let report = Report::read(&places).unwrap();
        let names: Vec<&str> = report.runs.iter().map(|(run, _)| run.name.as_str()).collect();
        assert!(names[0].ends_with("a/run") && names[1].ends_with("b/run") && names[2] == "c", "{names:?}");
        assert!(report.headlines().contains(&"c: nothing stands out".to_string()));
        let twice = [places[2].clone(), folder.path().join("a/../c")];
        assert!(Report::read(&twice).unwrap_err().to_string().contains("is given twice"));
        assert!(matches!(Report::read(&[]), Err(Error::NoRuns)));
        fs::write(places[2].join("learning-rates.csv"), "step,learning_rate,loss,smoothed_loss\n").unwrap();
        let error = Report::read(&places).unwrap_err().to_string();
        assert!(error.contains("c is the folder of a learning-rate range test"), "{error}");
    }
}
