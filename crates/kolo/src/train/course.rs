//! How far a run has come, as every worker knows it: whoever is rank 0 tomorrow can go on writing.

use kolo_ddp::checkpoint::Position;

use super::checkpoints;
use super::meter::{EpochRow, Meter, StepRow};

/// See the module's text.
pub(super) struct Course {
    pub(super) position: Position,
    /// What the epoch's figures were at the step from which this worker knows all.
    base: Position,
    /// The steps since then.
    rows: Vec<StepRow>,
    /// The figures of the epoch that runs, or has just ended.
    epoch: Meter,
    /// Steps done when the figures of an epoch were last written, and those figures.
    recorded: u64,
    records: Vec<EpochRow>,
}

impl From<Position> for Course {
    /// Where a checkpoint was written.
    fn from(position: Position) -> Self {
        let recorded = position.step;
        let (base, rows, epoch) = (position.clone(), Vec::new(), checkpoints::meter(&position));
        Course { position, base, rows, epoch, recorded, records: Vec::new() }
    }
}

impl Course {
    /// After so many steps of a run whose epochs have `steps` of them.
    pub(super) fn at(step: u64, steps: usize) -> Self {
        Course::from(position(step, steps))
    }

    /// A step has been done.
    pub(super) fn add(&mut self, row: StepRow, steps: usize) {
        if self.position.step_in_epoch == 0 {
            self.epoch = Meter::default();
        }
        self.position = position(row.step + 1, steps);
        self.epoch.add(&row);
        self.rows.push(row);
    }

    /// Goes back to, or on from, that many steps: the last one may have to be done again.
    pub(super) fn go_to(&mut self, step: u64, steps: usize) {
        if step != self.position.step {
            self.rows.retain(|row| row.step < step);
            self.position = position(step, steps);
            let epoch = self.epochs().saturating_sub(1);
            let begun = self.base.step_in_epoch > 0 && self.base.epoch == epoch;
            self.epoch = if begun { checkpoints::meter(&self.base) } else { Meter::default() };
            self.rows.iter().filter(|row| row.epoch == epoch).for_each(|row| self.epoch.add(row));
        }
    }

    /// The steps that this worker knows of.
    pub(super) fn rows(&self) -> &[StepRow] {
        &self.rows
    }

    /// Epochs begun.
    pub(super) fn epochs(&self) -> usize {
        self.position.epoch + usize::from(self.position.step_in_epoch > 0)
    }

    /// Whether an epoch, or the run of `total` steps, has ended since figures were last written.
    pub(super) fn is_unrecorded(&self, total: u64) -> bool {
        let ended = self.position.step_in_epoch == 0 || self.position.step >= total;
        ended && self.position.step > self.recorded
    }

    pub(super) fn record(&mut self, row: EpochRow) {
        self.recorded = self.position.step;
        self.records.push(row);
    }

    /// The figures of the epochs whose ends this worker has seen.
    pub(super) fn records(&self) -> &[EpochRow] {
        &self.records
    }

    /// The figures of the epoch that runs, or has just ended.
    pub(super) fn epoch_meter(&self) -> &Meter {
        &self.epoch
    }

    /// The figures of all steps that this worker knows of.
    pub(super) fn meter(&self) -> Meter {
        let mut meter = Meter::default();
        self.rows.iter().for_each(|row| meter.add(row));
        meter
    }
}

fn position(step: u64, steps: usize) -> Position {
    let steps = steps as u64;
    let (epoch, step_in_epoch) = ((step / steps) as usize, (step % steps) as usize);
    Position { step, epoch, step_in_epoch, notes: serde_json::Value::Null }
}
