//! The progress of a run, known to every worker, so that any of them can continue to write as rank 0.

use kolo_ddp::checkpoint::Position;
use kolo_ddp::{LastStep, Staleness, StepReport};

use crate::calendar::Calendar;
use crate::evaluations::Evaluations;
use crate::meter::{EpochRow, Meter, StepRow};

/// Keys in a position's notes: Σ loss × samples and samples of the epoch so far, whether an epoch that ends
/// there has a row in `metrics.csv`, all evaluations, and what has ended the run before its last step.
const LOSS_SUM: &str = "loss_sum";
const COUNT: &str = "count";
const RECORDED: &str = "recorded";
const EVALUATIONS: &str = "evaluations";
const STOPPED_BY: &str = "stopped_by";
/// Reason of a run's end, in its summary and in checkpoints.
const CALLBACK: &str = "callback";

/// The position of a run, this worker's rows of steps and epochs, and the figures of the present epoch.
#[derive(Debug)]
pub struct Progress {
    /// Calendar of the run as planned, which has its epochs and its steps without an early end.
    calendar: Calendar,
    /// Steps of the whole run.
    total: u64,
    /// Number of steps after which a callback has ended the run.
    stopped: Option<u64>,
    pub(crate) position: Position,
    /// First step from which on this worker has all rows, and the epoch's figures before it.
    pub(crate) known_from: u64,
    pub(crate) earlier: Meter,
    /// First step that those figures include.
    pub(crate) covered_from: u64,
    /// Last steps, as this worker saw them, whose final loss is not known yet: over all islands or workers,
    /// or of a step with a late update.
    waiting: Vec<(StepRow, StepReport)>,
    /// Steps seen by this worker in which all shards, or all islands, were summed, and the bytes of each;
    /// then the number and bytes of such steps before them.
    summed: Vec<(u64, u64)>,
    summed_before: (u64, u64),
    /// Staleness of the pulled weights, if servers hold them.
    staleness: Option<Staleness>,
    /// Steps from `known_from` on, and the figures of earlier ones that this worker has seen.
    pub(crate) steps: Vec<StepRow>,
    pub(crate) before: Meter,
    /// Figures of the epoch that runs, or has just ended.
    epoch: Meter,
    /// Steps done at the last recorded evaluation, and the recorded rows.
    recorded: u64,
    epochs: Vec<EpochRow>,
    pub(crate) evaluations: Evaluations,
}

impl Progress {
    /// Makes the progress after `step` steps of a run about which this worker knows nothing more.
    pub fn at(step: u64, calendar: Calendar) -> Self {
        Progress {
            total: calendar.total,
            stopped: None,
            position: calendar.position(step),
            known_from: step,
            earlier: Meter::default(),
            covered_from: step,
            waiting: Vec::new(),
            summed: Vec::new(),
            summed_before: (0, 0),
            staleness: None,
            steps: Vec::new(),
            before: Meter::default(),
            epoch: Meter::default(),
            // An epoch that ends here may not have been recorded yet.
            recorded: calendar.evaluated_by(step.saturating_sub(1)),
            epochs: Vec::new(),
            evaluations: Evaluations::default(),
            calendar,
        }
    }

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

    /// Position in the run, without notes.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Evaluations so far.
    pub fn evaluations(&self) -> &Evaluations {
        &self.evaluations
    }

    /// Number of steps done.
    pub fn step(&self) -> u64 {
        self.position.step
    }

    /// Number of steps of the whole run.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Last steps that this worker knows, up to the position: at least the last 16,384, for a writer that
    /// continues the files of another one.
    pub fn steps(&self) -> &[StepRow] {
        &self.steps
    }

    /// Figures of the epochs whose ends this worker has seen.
    pub fn epochs(&self) -> &[EpochRow] {
        &self.epochs
    }

    /// Number of the last epoch with figures, here or on another worker, as `metrics.csv` has it.
    pub fn recorded_epoch(&self) -> f64 {
        self.epoch_of_figures(self.recorded)
    }

    /// Number of an epoch in figures that are taken after so many steps.
    pub fn epoch_of_figures(&self, steps: u64) -> f64 {
        self.calendar.epoch_of_figures(steps)
    }

    /// Figures of the epoch that runs, or has just ended.
    pub fn epoch_meter(&self) -> &Meter {
        &self.epoch
    }

    /// Returns the figures of all steps that this worker knows.
    pub fn meter(&self) -> Meter {
        let mut meter = self.before.clone();
        self.steps.iter().for_each(|row| meter.add(row));
        meter
    }

    /// Records a step with this worker's `report`. Returns the steps whose losses are final now, in order,
    /// for the caller to add: this one, all since the last outer step of islands, some earlier ones that the
    /// slowest worker has reached, the one before, or none.
    pub fn settle(&mut self, row: StepRow, report: &StepReport) -> Vec<(StepRow, StepReport)> {
        self.position = self.calendar.position(row.step + 1);
        if report.traffic.summed_bytes > 0 {
            self.summed.push((row.step, report.traffic.summed_bytes));
            for (_, bytes) in surplus(&mut self.summed) {
                self.summed_before = (self.summed_before.0 + 1, self.summed_before.1 + bytes);
            }
        }
        self.waiting.push((row, report.clone()));
        if let Some(staleness) = &report.staleness {
            self.staleness.get_or_insert_default().merge(staleness);
        }
        let Some(last) = report.known.last() else { return Vec::new() };
        let later = self.waiting.iter().position(|(row, _)| row.step > last.step);
        let mut settled: Vec<_> = self.waiting.drain(..later.unwrap_or(self.waiting.len())).collect();
        for (row, _) in &mut settled {
            if let Some(known) = report.known.iter().find(|known| known.step == row.step) {
                row.settle(known);
            }
        }
        settled
    }

    /// Adds the row of a step whose loss is final.
    pub fn add_step(&mut self, row: StepRow) {
        if self.calendar.position(row.step).step_in_epoch == 0 {
            self.epoch = Meter::default();
        }
        // Its loss may have become known only after later steps.
        if row.step >= self.position.step {
            self.position = self.calendar.position(row.step + 1);
        }
        self.epoch.add(&row);
        self.steps.push(row);
        self.forget_surplus();
    }

    /// Reduces old steps to their sums.
    fn forget_surplus(&mut self) {
        let first = self.first_of_epoch();
        for row in surplus(&mut self.steps) {
            if self.known_from <= first {
                self.earlier = Meter::default();
            }
            if row.step >= first {
                self.earlier.add(&row);
            }
            self.before.add(&row);
            self.known_from = row.step + 1;
        }
    }

    /// Adds the missing rows of steps that completed elsewhere only, or after which this worker failed. Rows
    /// of steps that only lacked their final losses keep their measurements; the others are `unseen`.
    pub fn complete(&mut self, known: &[LastStep], unseen: impl Fn(&LastStep, usize) -> StepRow) {
        let mut waiting: Vec<StepRow> =
            std::mem::take(&mut self.waiting).into_iter().map(|(row, _)| row).collect();
        let mut next = self.position.step - waiting.len() as u64;
        for last in known {
            if last.step != next {
                continue;
            }
            let row = match waiting.iter().position(|row| row.step == last.step) {
                Some(place) => {
                    StepRow { loss: last.loss, count: last.count as u64, ..waiting.swap_remove(place) }
                }
                None => unseen(last, self.calendar.position(last.step).epoch),
            };
            self.add_step(row);
            next += 1;
        }
    }

    /// True if the losses of all steps are final.
    #[cfg(test)]
    fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number and bytes of the steps seen by this worker in which all shards, or all islands,
    /// were summed.
    pub fn summed(&self) -> (u64, u64) {
        let (steps, bytes) = self.summed_before;
        let last: u64 = self.summed.iter().map(|(_, bytes)| bytes).sum();
        (steps + self.summed.len() as u64, bytes + last)
    }

    /// Staleness of the weights pulled by all workers, if servers hold them.
    pub fn staleness(&self) -> Option<&Staleness> {
        self.staleness.as_ref()
    }

    /// Records the end of an epoch, or of the run, with these figures.
    pub fn add_epoch(&mut self, row: EpochRow) {
        self.recorded = self.position.step;
        self.evaluations.add(self.position.step, &row.scores);
        self.epochs.push(row);
    }

    /// Ends the run here if `early` is true, because of the evaluations; else as planned.
    pub fn end_here(&mut self, early: bool) {
        let early = early || self.stopped == Some(self.position.step);
        self.total = if early { self.position.step } else { self.calendar.total };
    }

    /// Ends the run here, because a callback has decided so.
    pub fn stop_here(&mut self) {
        self.stopped = Some(self.position.step);
        self.end_here(true);
    }

    /// Number of steps after which a callback has ended the run.
    pub(crate) fn stopped(&self) -> Option<u64> {
        self.stopped
    }

    /// Word for what has ended the run before its last step.
    pub fn stopped_by(&self) -> Option<&'static str> {
        self.stopped.map(|_| CALLBACK)
    }

    /// Moves to that many steps. A move back forgets the later steps, and with them the ends of epochs, which
    /// are repeated.
    pub fn move_to(&mut self, step: u64) {
        if step < self.known_from {
            (self.known_from, self.covered_from, self.earlier) = (step, step, Meter::default());
            (self.before, self.summed_before) = (Meter::default(), (0, 0));
        }
        if step < self.recorded {
            self.record_again(self.calendar.evaluated_by(step));
        }
        if self.stopped.take_if(|stopped| *stopped > step).is_some() {
            self.total = self.calendar.total;
        }
        self.waiting.clear();
        self.summed.retain(|(summed, _)| *summed < step);
        if step != self.position.step {
            self.steps.retain(|row| row.step < step);
            self.position = self.calendar.position(step);
            self.sum_epoch();
        }
    }

    /// Sums up the epoch that runs, or has just ended, from the known rows.
    pub(crate) fn sum_epoch(&mut self) {
        let first = self.first_of_epoch();
        self.epoch = if self.known_from > first { self.earlier.clone() } else { Meter::default() };
        self.steps.iter().filter(|row| row.step >= first).for_each(|row| self.epoch.add(row));
    }

    /// First step of the epoch that runs, or has just ended.
    pub(crate) fn first_of_epoch(&self) -> u64 {
        self.calendar.first_of_epoch(self.position.step)
    }

    /// Number of epochs that the run as planned begins, of which `--steps` may cut off the last.
    pub fn planned_epochs(&self) -> usize {
        self.calendar.epochs_begun(self.calendar.total)
    }

    /// Number of epochs begun.
    pub fn epochs_begun(&self) -> usize {
        self.calendar.epochs_begun(self.position.step)
    }

    /// True if the run has no further step.
    pub fn is_over(&self) -> bool {
        self.position.step >= self.total
    }

    /// True if the model is evaluated here, as at the end of an epoch or of the run.
    pub fn is_evaluated_here(&self) -> bool {
        self.calendar.after(self.position.step).evaluation || self.is_over()
    }

    /// True if the model is to be evaluated here, and is not.
    pub fn is_unrecorded(&self) -> bool {
        self.is_evaluated_here() && self.position.step > self.recorded
    }

    /// Steps done at the last recorded evaluation.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Forgets figures after step `recorded`, which some worker does not have: all record them again.
    pub(crate) fn record_again(&mut self, recorded: u64) {
        self.recorded = recorded;
        self.epochs.retain(|row| row.steps <= recorded);
        self.evaluations.forget_after(recorded);
    }
}

/// Fewest last steps whose rows are kept.
const KEPT: usize = 16_384;

/// Removes the first [`KEPT`] entries once there are twice as many.
fn surplus<T>(all: &mut Vec<T>) -> Vec<T> {
    if all.len() < 2 * KEPT { Vec::new() } else { all.drain(..KEPT).collect() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kolo_ddp::GradientTraffic;

    use super::*;

    const STEPS: u64 = 6;

    fn last(step: u64) -> LastStep {
        LastStep {
            step,
            loss: step as f64 + 0.5,
            count: 7.0,
            gradient_norm: None,
            noise_scale: None,
            skipped: false,
        }
    }

    /// Row of a worker that at first knows only the loss of its own islands.
    fn row(step: u64) -> StepRow {
        StepRow { loss: -1.0, ..unseen(&last(step), 0) }
    }

    fn unseen(last: &LastStep, epoch: usize) -> StepRow {
        StepRow::unseen(last, epoch, 0.1, Duration::from_millis(100 * (last.step + 1)))
    }

    /// Progress of a worker that has seen two rounds of three steps, and `more` steps of the third.
    fn seen(more: u64) -> Progress {
        let mut progress = Progress::at(0, Calendar::for_tests(STEPS, 100));
        for step in 0..6 + more {
            let ends = step < 6 && step % 3 == 2;
            let known = if ends { (step - 2..=step).map(last).collect() } else { Vec::new() };
            let traffic = GradientTraffic { summed_bytes: 4 * u64::from(ends), ..Default::default() };
            let report = StepReport { known, traffic, ..StepReport::default() };
            for (row, _) in progress.settle(row(step), &report) {
                progress.add_step(row);
            }
        }
        progress
    }

    /// Numbers, losses and epochs of all rows.
    fn rows(progress: &Progress) -> Vec<(u64, f64, usize)> {
        progress.steps().iter().map(|row| (row.step, row.loss, row.epoch)).collect()
    }

    /// A run of one long epoch, and one of many, have all figures and not all rows.
    #[test]
    fn memory_does_not_grow_with_the_run() {
        let total = 5 * KEPT as u64 + 7;
        for steps in [total, STEPS] {
            let mut progress = Progress::at(0, Calendar::for_tests(steps, 2 * total));
            let mut whole = Meter::default();
            for step in 0..total {
                let traffic = GradientTraffic { summed_bytes: 4, ..Default::default() };
                let report = StepReport { known: vec![last(step)], traffic, ..StepReport::default() };
                for (row, _) in progress.settle(row(step), &report) {
                    whole.add(&row);
                    progress.add_step(row);
                }
                assert!(progress.steps().len() < 2 * KEPT && progress.summed.len() < 2 * KEPT);
            }
            assert_eq!(progress.summed(), (total, 4 * total));
            let meter = progress.meter();
            assert_eq!((meter.loss_sum, meter.count), (whole.loss_sum, whole.count));
            assert_eq!(meter.step_percentile(95.0), whole.step_percentile(95.0));
            // A repeated step: the epoch is summed again.
            let mut expected = Meter::default();
            (total - total % steps..total - 1).for_each(|step| expected.add(&unseen(&last(step), 0)));
            if steps == total {
                (0..total - 1).for_each(|step| expected.add(&unseen(&last(step), 0)));
            }
            progress.move_to(total - 1);
            let epoch = progress.epoch_meter();
            assert_eq!((epoch.loss_sum, epoch.count), (expected.loss_sum, expected.count));
        }
    }

    #[test]
    fn a_round_that_has_ended_elsewhere_is_known_here() {
        for more in 0..3 {
            let mut progress = seen(more);
            assert_eq!((progress.step(), progress.is_settled()), (6 + more, more == 0));
            progress.complete(&[6, 7, 8].map(last), unseen);
            progress.move_to(9);
            assert!(progress.is_settled());
            assert!(rows(&progress).iter().map(|row| row.0).eq(0..9), "{:?}", rows(&progress));
            assert!(progress.steps().iter().all(|row| row.loss == row.step as f64 + 0.5));
            assert_eq!(progress.steps()[8].epoch, 1);
            // Of the present epoch.
            assert_eq!(progress.epoch_meter().loss_sum, 7.0 * (6.5 + 7.5 + 8.5));
        }
    }

    #[test]
    fn a_round_that_is_done_again_is_told_once() {
        for (goes_back_to, known) in [(6, vec![3, 4, 5]), (3, vec![0, 1, 2]), (0, vec![])] {
            let mut progress = seen(2);
            assert_eq!(progress.summed(), (2, 8));
            progress.complete(&known.into_iter().map(last).collect::<Vec<_>>(), unseen);
            progress.move_to(goes_back_to);
            assert!(rows(&progress).iter().map(|row| row.0).eq(0..goes_back_to));
            assert_eq!((progress.step(), progress.is_settled()), (goes_back_to, true));
            assert_eq!(progress.summed(), (goes_back_to / 3, 4 * (goes_back_to / 3)));
        }
    }
}
