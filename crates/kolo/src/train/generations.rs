//! `generations.jsonl`: a line for each generation of an elastic job, written when its first step is done. One that ended before
//! has none.

use std::time::{SystemTime, UNIX_EPOCH};

use kolo_comm::Generation;
use serde::{Deserialize, Serialize};

use super::lines::Lines;
use crate::fail::Failure;

/// A line. Times are seconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GenerationRow {
    pub(crate) generation: u64,
    pub(crate) world_size: usize,
    /// Why the last one has ended.
    pub(crate) reason: String,
    /// When rank 0's group had formed.
    pub(crate) formed_unix: f64,
    pub(crate) first_step: u64,
    /// When that step was done.
    pub(crate) first_step_unix: f64,
}

/// See the module's text.
pub(super) struct Generations {
    lines: Lines,
    /// The generation whose first step is not done.
    begun: Option<(Generation, usize)>,
}

impl Generations {
    pub(super) fn new(lines: Lines) -> Self {
        Generations { lines, begun: None }
    }

    /// A generation of so many workers begins.
    pub(super) fn begin(&mut self, generation: Generation, world_size: usize) {
        self.begun = Some((generation, world_size));
    }

    /// A step of the generation is done.
    pub(super) fn step_done(&mut self, step: u64) -> Result<(), Failure> {
        let Some((generation, world_size)) = self.begun.take() else { return Ok(()) };
        let row = GenerationRow {
            generation: generation.number,
            world_size,
            reason: generation.reason,
            formed_unix: unix(generation.formed),
            first_step: step,
            first_step_unix: unix(SystemTime::now()),
        };
        self.lines.add(&serde_json::to_string(&row).map_err(Failure::work)?);
        self.lines.flush();
        Ok(())
    }

    /// Writes what could not be written before.
    pub(super) fn end(self) -> Result<(), Failure> {
        if self.lines.is_waiting() { self.lines.end() } else { Ok(()) }
    }
}

/// Seconds since 1970.
pub(crate) fn unix(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
