//! Position of a run: the contents of a checkpoint besides tensors.

use serde::{Deserialize, Serialize};

pub(crate) const POSITION: &str = "position.json";
/// Key in `position.json` of the expected number of uses of each tensor in the next step. They determine
/// which contributions come late, and so the order in which they are added.
pub(crate) const USES: &str = "uses";
/// Key in `position.json` of the averages behind the gradient's noise scale, if the job measures it. They are
/// text, because a JSON number may not keep all bits.
pub(crate) const NOISE_SCALE: &str = "noise_scale";

/// Position of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Steps done.
    pub step: u64,
    /// Epochs done.
    pub epoch: usize,
    /// Steps done in the current epoch.
    pub step_in_epoch: usize,
    /// Notes of the program, which it gets back when it resumes.
    pub notes: serde_json::Value,
}
