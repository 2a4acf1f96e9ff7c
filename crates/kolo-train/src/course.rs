//! How far a run has come, as every worker knows it: whoever is rank 0 tomorrow can go on writing.

use kolo_ddp::checkpoint::Position;

use crate::checkpoints;
use crate::meter::{EpochRow, Meter, StepRow};

/// See the module's text.
pub(crate) struct Course {
    /// Steps of an epoch, and of the whole run.
    steps: usize,
    total: u64,
    pub(crate) position: Position,
    /// The step from which on this worker has all rows, and what the epoch's figures were there.
    pub(crate) base: u64,
    pub(crate) before: Meter,
    /// The first step that those figures include.
    pub(crate) covers: u64,
    /// The steps since the base.
    pub(crate) rows: Vec<StepRow>,
    /// The figures of the epoch that runs, or has just ended.
    epoch: Meter,
    /// Steps done when the figures of an epoch were last written, and those figures.
    recorded: u64,
    records: Vec<EpochRow>,
}

impl Course {
    /// After so many steps of a run of `total`, whose epochs have `steps` of them, and of which this worker
    /// knows nothing more.
    pub(crate) fn at(step: u64, steps: usize, total: u64) -> Self {
        let epoch = steps as u64;
        Course {
            steps,
            total,
            position: position(step, steps),
            base: step,
            before: Meter::default(),
            covers: step,
            rows: Vec::new(),
            epoch: Meter::default(),
            // An epoch that ends here may not have been recorded yet.
            recorded: step.saturating_sub(1) / epoch * epoch,
            records: Vec::new(),
        }
    }

    /// Where a checkpoint was written.
    pub(crate) fn resumed(position: &Position, steps: usize, total: u64) -> Self {
        let mut course = Course::at(position.step, steps, total);
        course.covers = course.first_of_epoch();
        if checkpoints::is_recorded(position) && course.has_ended() {
            (course.recorded, course.covers) = (position.step, position.step);
        }
        course.before = checkpoints::meter(position);
        course.figure();
        course
    }

    /// A step has been done.
    pub(crate) fn add(&mut self, row: StepRow) {
        if self.position.step_in_epoch == 0 {
            self.epoch = Meter::default();
        }
        self.position = position(row.step + 1, self.steps);
        self.epoch.add(&row);
        self.rows.push(row);
    }

    /// Goes back to, or on from, that many steps: the last one may have to be done again.
    pub(crate) fn go_to(&mut self, step: u64) {
        if step != self.position.step {
            self.rows.retain(|row| row.step < step);
            self.position = position(step, self.steps);
            self.figure();
        }
    }

    /// Sums up the epoch that runs, or has just ended, from what is known of it.
    pub(crate) fn figure(&mut self) {
        let first = self.first_of_epoch();
        self.epoch = if self.base > first { self.before.clone() } else { Meter::default() };
        self.rows.iter().filter(|row| row.step >= first).for_each(|row| self.epoch.add(row));
    }

    /// The first step of the epoch that runs, or has just ended.
    pub(crate) fn first_of_epoch(&self) -> u64 {
        let steps = self.steps as u64;
        self.position.step.saturating_sub(1) / steps * steps
    }

    /// The steps that this worker knows of.
    pub(crate) fn rows(&self) -> &[StepRow] {
        &self.rows
    }

    /// Epochs begun.
    pub(crate) fn epochs(&self) -> usize {
        self.position.epoch + usize::from(self.position.step_in_epoch > 0)
    }

    /// Whether all steps of the run are done.
    pub(crate) fn is_over(&self) -> bool {
        self.position.step >= self.total
    }

    /// Whether an epoch or the run has ended here.
    fn has_ended(&self) -> bool {
        self.position.step_in_epoch == 0 || self.is_over()
    }

    /// Whether an epoch, or the run, has ended since figures were last written.
    pub(crate) fn is_unrecorded(&self) -> bool {
        self.has_ended() && self.position.step > self.recorded
    }

    pub(crate) fn record(&mut self, row: EpochRow) {
        self.recorded = self.position.step;
        self.records.push(row);
    }

    /// The figures of the epochs whose ends this worker has seen.
    pub(crate) fn records(&self) -> &[EpochRow] {
        &self.records
    }

    /// Steps done when the figures of an epoch were last written, and the epochs of which there are figures.
    pub(crate) fn recorded(&self) -> (u64, usize) {
        (self.recorded, self.recorded.div_ceil(self.steps as u64) as usize)
    }

    /// Somebody has not got further with the figures, so they are made again by all.
    pub(crate) fn record_again(&mut self, recorded: u64) {
        self.recorded = recorded;
        let (_, epochs) = self.recorded();
        self.records.retain(|row| row.epoch <= epochs);
    }

    /// The figures of the epoch that runs, or has just ended.
    pub(crate) fn epoch_meter(&self) -> &Meter {
        &self.epoch
    }

    /// The figures of all steps that this worker knows of.
    pub(crate) fn meter(&self) -> Meter {
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
