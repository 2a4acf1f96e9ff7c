//! `tuning.jsonl`: a line for each completed tuning, with the settings it tried and the ones it keeps.

use kolo_ddp::Tuning;
use serde::Serialize;

use super::append_file::{AppendFile, step_of};
use super::sink::{MetricSink, Record, SinkEntry};
use crate::progress::Progress;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: "tuning.jsonl",
    about: "with --tune, a line per tuning: the settings it tried, the one it kept, and the time that saves",
    open: |run| Some(Box::new(Tunings { file: AppendFile::new(run.folder?, ENTRY.name, "") })),
};

#[derive(Serialize)]
struct TuningRow<'a> {
    /// First step with the kept settings.
    step: u64,
    /// Share of a step's time that the kept settings save: 0.2 for a fifth.
    gain: f64,
    #[serde(flatten)]
    tuning: &'a Tuning,
}

struct Tunings {
    file: AppendFile,
}

impl MetricSink for Tunings {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let Record::Step { row, report, .. } = record else { return Ok(()) };
        let Some(tuning) = &report.tuning else { return Ok(()) };
        let line = TuningRow { step: row.step + 1, gain: tuning.gain(), tuning };
        let fail = |e: serde_json::Error| Error::encode("a tuning", e);
        self.file.add(&serde_json::to_string(&line).map_err(fail)?)?;
        self.file.flush()
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        self.file.rewind(|line| step_of(line).is_some_and(|step| step <= progress.step())).map(drop)
    }

    fn flush(&mut self) -> Result<(), Error> {
        // A run that is not tuned has no such file.
        if self.file.is_waiting() { self.file.flush() } else { Ok(()) }
    }
}
