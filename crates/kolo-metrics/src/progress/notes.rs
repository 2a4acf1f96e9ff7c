//! The progress in a checkpoint, as notes of its position.

use kolo_ddp::checkpoint::Position;

use super::Progress;
use crate::calendar::Calendar;
use crate::evaluations::Evaluations;
use crate::meter::Meter;

/// Keys in a position's notes: Σ loss × samples and samples of the epoch so far, whether an epoch that ends
/// there has a row in `metrics.csv`, all evaluations, and what has ended the run before its last step.
const LOSS_SUM: &str = "loss_sum";
const COUNT: &str = "count";
const RECORDED: &str = "recorded";
const EVALUATIONS: &str = "evaluations";
const STOPPED_BY: &str = "stopped_by";

impl Progress {
    /// Restores the progress at a checkpoint, with the figures that [`Progress::noted`] put into it.
    pub fn resumed(position: &Position, calendar: Calendar) -> Self {
        let mut progress = Progress::at(position.step, calendar);
        progress.covered_from = progress.first_of_epoch();
        if position.notes[RECORDED].as_bool().unwrap_or(true) && progress.is_evaluated_here() {
            progress.recorded = position.step;
            if position.step_in_epoch == 0 || progress.is_over() {
                progress.covered_from = position.step;
            }
        }
        let note = |name: &str| position.notes[name].as_str().and_then(|text| text.parse().ok());
        progress.earlier = Meter::of(note(LOSS_SUM).unwrap_or(0.0), note(COUNT).unwrap_or(0.0));
        progress.evaluations = Evaluations::from_notes(&position.notes[EVALUATIONS]);
        if position.notes[STOPPED_BY].is_string() {
            progress.stop_here();
        }
        progress.sum_epoch();
        progress
    }

    /// Returns the position for a checkpoint, with the figures of the epoch as its notes.
    pub fn noted(&self) -> Position {
        // As text, because JSON's numbers may lose bits.
        let notes = serde_json::json!({
            LOSS_SUM: self.epoch.loss_sum.to_string(),
            COUNT: self.epoch.count.to_string(),
            RECORDED: !self.is_unrecorded(),
            EVALUATIONS: self.evaluations.to_notes(),
            STOPPED_BY: self.stopped_by(),
        });
        Position { notes, ..self.position.clone() }
    }
}
