//! State of an island besides the job's weights.

use crate::loss_scaling::LossScale;

/// What one island goes on with, besides the job's weights.
pub(super) struct IslandState {
    /// State of its optimizer, by name.
    pub(super) states: Vec<(String, Vec<f32>)>,
    pub(super) uses: Vec<u32>,
    pub(super) loss_scale: LossScale,
}
