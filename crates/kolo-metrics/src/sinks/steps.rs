//! `steps.jsonl`: a line for each step.

use super::append_file::{AppendFile, step_of};
use super::sink::{MetricSink, Record, SinkEntry};
use crate::progress::Progress;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: kolo_run_folder::STEPS,
    about: "a line per step: loss, time, communication",
    open: |run| {
        let file = AppendFile::new(run.folder?, ENTRY.name, "");
        Some(Box::new(Steps { file, unit: run.unit.into() }))
    },
};

struct Steps {
    file: AppendFile,
    /// Unit that the loss counts.
    unit: String,
}

impl MetricSink for Steps {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match record {
            Record::Step { row, .. } => self.file.add(&row.json(&self.unit)?),
            _ => Ok(()),
        }
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        let kept = self.file.rewind(|line| step_of(line).is_some_and(|step| step < progress.step()))?;
        let last = kept.lines().rev().find_map(step_of);
        for row in progress.steps().iter().filter(|row| last.is_none_or(|last| row.step > last)) {
            self.file.add(&row.json(&self.unit)?)?;
        }
        self.file.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }
}
