//! `generations.jsonl`: a line for each generation of an elastic job, written when its first step is done.
//! One that ended before has none.

use std::time::{SystemTime, UNIX_EPOCH};

use kolo_comm::Generation;
use kolo_ddp::Change;
use serde::{Deserialize, Serialize};

use super::append_file::AppendFile;
use super::sink::{MetricSink, Record, SinkEntry};
use crate::error::Error;

/// Entry of the table.
pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: "generations.jsonl",
    about: "of an elastic job, a line a generation: its workers, why it began, how long that took",
    open: |run| {
        Some(Box::new(Generations { file: AppendFile::new(run.folder?, ENTRY.name, ""), begun: None }))
    },
};

/// A line of `generations.jsonl`. Times are seconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GenerationRow {
    /// Number of the generation, from 1.
    pub generation: u64,
    /// Its workers.
    pub world_size: usize,
    /// Why the last one has ended.
    pub reason: String,
    /// When rank 0's group had formed.
    pub formed_unix: f64,
    /// The first step that it has done, from 0.
    pub first_step: u64,
    /// When that step was done.
    pub first_step_unix: f64,
}

struct Generations {
    file: AppendFile,
    /// The generation whose first step is not done, and its workers.
    begun: Option<(Generation, usize)>,
}

impl MetricSink for Generations {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match record {
            Record::Generation { generation, world_size } => {
                self.begun = Some(((*generation).clone(), *world_size));
                Ok(())
            }
            // A change has begun the next generation already.
            Record::Step { row, report, .. } if report.change == Change::None => self.step_done(row.step),
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        // A job that is not elastic has no such file.
        if self.file.is_waiting() { self.file.flush() } else { Ok(()) }
    }
}

impl Generations {
    fn step_done(&mut self, step: u64) -> Result<(), Error> {
        let Some((generation, world_size)) = self.begun.take() else { return Ok(()) };
        let row = GenerationRow {
            generation: generation.number,
            world_size,
            reason: generation.reason,
            formed_unix: unix_seconds(generation.formed),
            first_step: step,
            first_step_unix: unix_seconds(SystemTime::now()),
        };
        let fail = |e: serde_json::Error| Error::Encode { what: "a generation", problem: e.to_string() };
        self.file.add(&serde_json::to_string(&row).map_err(fail)?)?;
        self.file.flush()
    }
}

/// Seconds since 1970.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
