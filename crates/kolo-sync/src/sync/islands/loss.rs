//! Losses of islands' steps. Each island scales its losses by itself, because it knows nothing of the others
//! within a round: an island that overflows skips its step alone.

use serde::{Deserialize, Serialize};

use kolo_step::LastStep;

/// Loss of a step of one island.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct IslandLoss {
    /// Sum of the loss over the island's samples.
    pub(super) loss: f64,
    /// Number of these samples.
    pub(super) count: f64,
    /// True if the island skipped the step. Only then may the loss be NaN or infinite.
    pub(super) skipped: bool,
}

/// Returns the result of step `step` of some islands: the mean over those whose loss is finite. It counts as
/// skipped if all islands that had samples skipped it.
pub(super) fn mean(step: u64, islands: impl Iterator<Item = IslandLoss> + Clone) -> LastStep {
    let sum = |islands: &mut dyn Iterator<Item = IslandLoss>| {
        islands.fold([0.0; 2], |sum, own| [sum[0] + own.loss, sum[1] + own.count])
    };
    let all = sum(&mut islands.clone());
    let finite = sum(&mut islands.clone().filter(|own| own.loss.is_finite()));
    let [loss, count] = if finite[1] > 0.0 { finite } else { all };
    let mut with_samples = islands.filter(|own| own.count > 0.0).peekable();
    let skipped = with_samples.peek().is_some() && with_samples.all(|own| own.skipped);
    let loss = if loss.is_nan() { f64::NAN } else { loss / count };
    let (gradient_norm, noise_scale) = (None, None);
    LastStep { step, loss, count: all[1], gradient_norm, noise_scale, skipped }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn island(loss: f64, count: f64, skipped: bool) -> IslandLoss {
        IslandLoss { loss, count, skipped }
    }

    #[test]
    fn an_island_whose_loss_has_overflowed_is_in_no_mean() {
        let come_to = |islands: &[IslandLoss]| {
            let LastStep { loss, count, skipped, .. } = mean(3, islands.iter().copied());
            (loss, count, skipped)
        };
        let (fine, empty) = (island(6.0, 4.0, false), island(0.0, 0.0, false));
        assert_eq!(come_to(&[fine, island(10.0, 4.0, false), empty]), (2.0, 8.0, false));
        assert_eq!(come_to(&[fine, island(10.0, 4.0, true)]), (2.0, 8.0, false));
        assert_eq!(come_to(&[fine, island(f64::NAN, 4.0, true), empty]), (1.5, 8.0, false));
        assert_eq!(come_to(&[island(6.0, 4.0, true), empty]), (1.5, 4.0, true));
        let (loss, count, skipped) = come_to(&[island(f64::INFINITY, 4.0, true), empty]);
        assert!(loss == f64::INFINITY && count == 4.0 && skipped);
        let (loss, count, skipped) = come_to(&[]);
        assert!(loss.is_nan() && count == 0.0 && !skipped);
    }
}
