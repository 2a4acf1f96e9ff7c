//! Where a run was: what a checkpoint holds besides tensors.

use serde::{Deserialize, Serialize};

/// The file that it is in.
pub(crate) const POSITION: &str = "position.json";
/// What `position.json` has besides a [`Position`]: how often the next step is expected to use each tensor.
/// Which contributions come late follows from it, and so in which order they are added.
pub(crate) const USES: &str = "uses";
/// And, of a job that measures it, the averages that the noise scale of its gradient is made of, as text:
/// JSON's numbers need not come back in the same bits.
pub(crate) const NOISE_SCALE: &str = "noise_scale";

/// Where a run was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Steps done.
    pub step: u64,
    /// Epochs done.
    pub epoch: usize,
    /// Steps done in the epoch that has begun.
    pub step_in_epoch: usize,
    /// Anything else the program wants to find again.
    pub notes: serde_json::Value,
}
