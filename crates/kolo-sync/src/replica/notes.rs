//! State of a job that is so small that each rank can hold all of it.

use serde::{Deserialize, Serialize};

use kolo_reduction::state::StateCopy;
use kolo_reduction::transform::States;
use kolo_step::{LossScale, NoiseScale};

/// State of a core besides its arrays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Notes {
    /// Number of times that the next step is expected to use each tensor.
    pub uses: Vec<u32>,
    /// Noise scale after the steps so far.
    pub noise_scale: NoiseScale,
    /// State of loss scaling.
    pub loss_scale: LossScale,
    /// States of the gradient transforms.
    pub transforms: States,
}

/// State of a job besides its arrays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobNotes {
    /// Notes on the core.
    pub core: Notes,
    /// Notes on the islands, in their order: of those that a rank represents, or of all.
    pub islands: Vec<Notes>,
    /// Number of steps skipped until the last outer step, counted for each island.
    pub skipped_steps: u64,
    /// Number of steps that the servers' optimizers have made, where it is known.
    pub updates: Option<u64>,
    /// Number of times that the step after the next one is expected to use each tensor. `None` unless updates
    /// are one step late and the next step's passes lack the last one.
    pub late_uses: Option<Vec<u32>>,
}

impl JobNotes {
    /// Returns the notes on a job that has none but those on its core.
    pub fn of_core(core: Notes) -> Self {
        JobNotes { core, islands: Vec::new(), skipped_steps: 0, updates: None, late_uses: None }
    }
}

/// Copy of a job's state, or of the part that a rank holds.
#[derive(Clone, Debug)]
pub struct JobState {
    /// State besides the arrays.
    pub notes: JobNotes,
    /// Arrays.
    pub arrays: StateCopy,
}
