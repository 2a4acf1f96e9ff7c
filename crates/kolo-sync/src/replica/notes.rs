//! State of a job that is so small that each rank can hold all of it.

use serde::{Deserialize, Serialize};

use super::core::Core;
use kolo_reduction::Error;
use kolo_reduction::state::StateCopy;
use kolo_reduction::transform::States;
use kolo_step::{LossScale, LossScaler, NoiseScale};

/// State of a core besides its arrays.
#[derive(Clone, Serialize, Deserialize)]
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
#[derive(Clone, Serialize, Deserialize)]
pub struct JobNotes {
    /// Notes on the core.
    pub core: Notes,
    /// Notes on the islands, in their order: of those that a rank represents, or of all.
    pub islands: Vec<Notes>,
    /// Number of steps skipped until the last outer step, counted for each island.
    pub skipped_steps: u64,
    /// Number of steps that the servers' optimizers have made, where it is known.
    pub updates: Option<u64>,
}

/// Copy of a job's state, or of the part that a rank holds.
#[derive(Clone)]
pub struct JobState {
    /// State besides the arrays.
    pub notes: JobNotes,
    /// Arrays.
    pub arrays: StateCopy,
}

impl Core {
    /// Returns the notes on this core.
    pub fn notes(&self) -> Notes {
        Notes {
            uses: self.step.expected_uses().to_vec(),
            noise_scale: self.observers.noise.known,
            loss_scale: self.scaler.now(),
            transforms: self.transforms.states(),
        }
    }

    /// Returns the notes on a core that begins.
    pub fn first_notes(&self) -> Notes {
        Notes {
            uses: vec![1; self.weights.layout.spans().len()],
            noise_scale: NoiseScale::default(),
            loss_scale: LossScaler::new(self.config.loss_scaling).now(),
            transforms: States::new(),
        }
    }

    /// Continues from the notes on a core of another rank, a checkpoint or a copy.
    ///
    /// # Errors
    ///
    /// A gradient transform cannot continue from its state (naming the transform).
    pub fn set_notes(&mut self, notes: Notes) -> Result<(), Error> {
        let Notes { uses, noise_scale, loss_scale, transforms } = notes;
        self.step.expect_uses(uses);
        self.observers.noise.known = noise_scale;
        self.scaler.take_over(loss_scale);
        self.transforms.take_over(&self.weights.layout, transforms)
    }
}
