//! Result of the last complete step. It is part of the state that ranks send to others: a rank on which the
//! step's end failed, or which joined later, receives it nevertheless.

use serde::{Deserialize, Serialize};

use crate::noise_scale::NoiseScale;

/// A step all of whose updates are made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastStep {
    /// Its number, from 0.
    pub step: u64,
    /// Mean loss over the global batch, in the bits of `StepReport::loss`.
    pub loss: f64,
    /// Samples of the global batch, over which the mean is.
    pub count: f64,
    /// Same as `StepReport::gradient_norm`.
    pub gradient_norm: Option<f64>,
    /// The noise scale after it, in the bits of `StepReport::noise_scale`.
    pub noise_scale: Option<NoiseScale>,
    /// Same as `StepReport::skipped`.
    pub skipped: bool,
}

impl LastStep {
    /// A step of which only the sum of its losses over `count` samples is known.
    pub fn of_losses(step: u64, sum: f64, count: f64) -> Self {
        LastStep { step, loss: sum / count, count, gradient_norm: None, noise_scale: None, skipped: false }
    }
}
