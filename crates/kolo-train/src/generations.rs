//! `generations.jsonl`: a line for each generation of an elastic job, written when its first step is done.
//! One that ended before has none.

use std::time::{SystemTime, UNIX_EPOCH};

use kolo_comm::Generation;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::lines::Lines;

/// A line. Times are seconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GenerationRow {
    /// Number of the generation, from 0.
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

/// See the module's text.
pub(crate) struct Generations {
    lines: Lines,
    /// The generation whose first step is not done.
    begun: Option<(Generation, usize)>,
}

impl Generations {
    pub(crate) fn new(lines: Lines) -> Self {
        Generations { lines, begun: None }
    }

    /// A generation of so many workers begins.
    pub(crate) fn begin(&mut self, generation: Generation, world_size: usize) {
        self.begun = Some((generation, world_size));
    }

    /// A step of the generation is done.
    pub(crate) fn step_done(&mut self, step: u64) -> Result<(), Error> {
        let Some((generation, world_size)) = self.begun.take() else { return Ok(()) };
        let row = GenerationRow {
            generation: generation.number,
            world_size,
            reason: generation.reason,
            formed_unix: unix(generation.formed),
            first_step: step,
            first_step_unix: unix(SystemTime::now()),
        };
        self.lines.add(
            &serde_json::to_string(&row)
                .map_err(|e| Error::Encode { what: "a generation", problem: e.to_string() })?,
        );
        self.lines.flush();
        Ok(())
    }

    /// Writes what could not be written before.
    pub(crate) fn end(self) -> Result<(), Error> {
        if self.lines.is_waiting() { self.lines.end() } else { Ok(()) }
    }
}

/// Seconds since 1970.
pub fn unix(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
