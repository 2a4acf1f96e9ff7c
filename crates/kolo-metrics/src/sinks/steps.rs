//! `steps.jsonl`: a line for each step.

use super::append_file::{AppendFile, report_lost, step_of};
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
        let kept = kept.lines().rev().find_map(step_of);
        let mut last = kept;
        for row in progress.steps().iter().filter(|row| kept.is_none_or(|kept| row.step > kept)) {
            self.file.add(&row.json(&self.unit)?)?;
            last = Some(row.step);
        }
        let next = last.map_or(0, |last| last + 1);
        if let Some(end) = progress.step().checked_sub(1) {
            report_lost(ENTRY.name, "step", next..=end);
        }
        self.file.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }
}
