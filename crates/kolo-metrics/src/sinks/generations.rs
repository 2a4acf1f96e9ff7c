//! `generations.jsonl`: a line for each generation of an elastic job, written when its first step is done. A
//! generation that ended before that has none.

use std::time::SystemTime;

use kolo_comm::Generation;
use kolo_ddp::Change;
use kolo_run_folder::{GENERATIONS, GenerationRow, JsonRow, unix_seconds};

use super::append_file::AppendFile;
use super::sink::{MetricSink, Record, SinkEntry};
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: GENERATIONS,
    about: "of an elastic job, a line per generation: its workers, why it began, and how long that took",
    open: |run| {
        Some(Box::new(Generations { file: AppendFile::new(run.folder?, ENTRY.name, ""), begun: None }))
    },
};

struct Generations {
    file: AppendFile,
    /// Generation whose first step is not done, and its workers.
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
        let fail = |e: serde_json::Error| Error::encode("a generation", e);
        self.file.add(&row.json().map_err(fail)?)?;
        self.file.flush()
    }
}
