//! State of an island besides the job's weights.

use kolo_step::LossScale;

/// State with which an island continues, besides the job's weights.
pub(super) struct IslandState {
    /// State of the island's optimizer, by name.
    pub(super) states: Vec<(String, Vec<f32>)>,
    pub(super) uses: Vec<u32>,
    pub(super) loss_scale: LossScale,
}
