//! How far a run has come, as every worker knows it: whoever is rank 0 tomorrow can go on writing.

use kolo_ddp::checkpoint::Position;
use kolo_ddp::{LastStep, Staleness, StepReport};

use crate::calendar::Calendar;
use crate::evaluations::{Best, Evaluations};
use crate::meter::{EpochRow, Meter, StepRow};
use crate::metric::Metric;

/// In a position's notes: Σ loss × samples and samples of the epoch so far, whether an epoch that ends there
/// has a row in `metrics.csv`, and all evaluations.
const LOSS_SUM: &str = "loss_sum";
const COUNT: &str = "count";
const RECORDED: &str = "recorded";
const EVALUATIONS: &str = "evaluations";

/// The position of a run, the steps and epochs that this worker knows of, and the figures of the epoch that
/// runs.
#[derive(Debug)]
pub struct Progress {
    /// Which steps make an epoch, and of how many the run would be made if it did not end early.
    calendar: Calendar,
    /// Steps of the whole run.
    total: u64,
    pub(crate) position: Position,
    /// The step from which on this worker has all rows, and what the epoch's figures were there.
    pub(crate) known_from: u64,
    pub(crate) earlier: Meter,
    /// The first step that those figures include.
    pub(crate) covered_from: u64,
    /// The last steps, whose loss over all islands or workers is not known yet, or that of a step whose
    /// update is late, with what this worker has seen of them.
    waiting: Vec<(StepRow, StepReport)>,
    /// Steps this worker has seen in which all shards, or all islands, were summed, and the bytes of each;
    /// and of those before them how many they were, and their bytes.
    summed: Vec<(u64, u64)>,
    summed_before: (u64, u64),
    /// How stale what workers pulled was, where servers hold the weights.
    staleness: Option<Staleness>,
    /// The steps from `known_from` on, and the figures of those before them that this worker has seen.
    pub(crate) steps: Vec<StepRow>,
    pub(crate) before: Meter,
    /// The figures of the epoch that runs, or has just ended.
    epoch: Meter,
    /// Steps done when the figures of an epoch were last written, and those figures.
    recorded: u64,
    epochs: Vec<EpochRow>,
    /// All scores of the run.
    pub(crate) evaluations: Evaluations,
}

impl Progress {
    /// After `step` steps of a run, of which this worker knows nothing more.
    pub(crate) fn at(step: u64, calendar: Calendar) -> Self {
        Progress {
            total: calendar.total,
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
            recorded: calendar.first_of_epoch(step),
            epochs: Vec::new(),
            evaluations: Evaluations::default(),
            calendar,
        }
    }

    /// Where a checkpoint was written, with the figures that [`Progress::noted`] had put into it.
    pub(crate) fn resumed(position: &Position, calendar: Calendar) -> Self {
        let mut progress = Progress::at(position.step, calendar);
        progress.covered_from = progress.first_of_epoch();
        if position.notes[RECORDED].as_bool().unwrap_or(true) && progress.has_ended() {
            (progress.recorded, progress.covered_from) = (position.step, position.step);
        }
        let note = |name: &str| position.notes[name].as_str().and_then(|text| text.parse().ok());
        progress.earlier = Meter::of(note(LOSS_SUM).unwrap_or(0.0), note(COUNT).unwrap_or(0.0));
        progress.evaluations = Evaluations::from_notes(&position.notes[EVALUATIONS]);
        progress.sum_epoch();
        progress
    }

    /// The position with the figures of the epoch as its notes, for a checkpoint.
    pub(crate) fn noted(&self) -> Position {
        // As text, because JSON's numbers need not come back in the same bits.
        let notes = serde_json::json!({
            LOSS_SUM: self.epoch.loss_sum.to_string(),
            COUNT: self.epoch.count.to_string(),
            RECORDED: !self.is_unrecorded(),
            EVALUATIONS: self.evaluations.to_notes(),
        });
        Position { notes, ..self.position.clone() }
    }

    /// Steps done.
    pub fn step(&self) -> u64 {
        self.position.step
    }

    /// Steps of the whole run.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The last steps, up to the position, of those that this worker knows of: at least the last 16,384, for
    /// whoever writes files that others have begun.
    pub fn steps(&self) -> &[StepRow] {
        &self.steps
    }

    /// The figures of the epochs whose ends this worker has seen.
    pub fn epochs(&self) -> &[EpochRow] {
        &self.epochs
    }

    /// Epochs of which there are figures, here or on another worker.
    pub fn recorded_epochs(&self) -> usize {
        self.calendar.epochs_begun(self.recorded)
    }

    /// The figures of the epoch that runs, or has just ended.
    pub fn epoch_meter(&self) -> &Meter {
        &self.epoch
    }

    /// The figures of all steps that this worker knows of.
    pub(crate) fn meter(&self) -> Meter {
        let mut meter = self.before.clone();
        self.steps.iter().for_each(|row| meter.add(row));
        meter
    }

    /// A step has been done, of which this worker has seen `report`. Gives the steps whose losses have become
    /// known with it, in order, each of which is to be added: this one, or all since the last outer step of
    /// islands, or some earlier ones that the slowest worker has come to, or the one before, or none.
    pub(crate) fn settle(&mut self, row: StepRow, report: &StepReport) -> Vec<(StepRow, StepReport)> {
        self.position = self.calendar.position(row.step + 1);
        if report.summed_bytes > 0 {
            self.summed.push((row.step, report.summed_bytes));
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

    /// A step has been done.
    pub(crate) fn add_step(&mut self, row: StepRow) {
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

    /// Of steps long ago only the sums are kept.
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

    /// Steps have come to their end elsewhere only, or something has failed here after them: adds the rows of
    /// those that are missing, `unseen` here unless their losses were all that was not known.
    pub(crate) fn complete(&mut self, known: &[LastStep], unseen: impl Fn(&LastStep, usize) -> StepRow) {
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

    /// Whether the losses of all steps are known: where shards do not synchronise in every step, whether they
    /// just have.
    #[cfg(test)]
    fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Steps that this worker has seen in which all shards, or all islands, were summed, and the bytes of
    /// that.
    pub(crate) fn summed(&self) -> (u64, u64) {
        let (steps, bytes) = self.summed_before;
        let last: u64 = self.summed.iter().map(|(_, bytes)| bytes).sum();
        (steps + self.summed.len() as u64, bytes + last)
    }

    /// How stale what all workers have pulled was, where servers hold the weights.
    pub(crate) fn staleness(&self) -> Option<&Staleness> {
        self.staleness.as_ref()
    }

    /// An epoch, or the run, has ended here and has these figures.
    pub(crate) fn add_epoch(&mut self, row: EpochRow) {
        self.recorded = self.position.step;
        self.evaluations.add(self.position.step, &row.scores);
        self.epochs.push(row);
    }

    /// The best evaluation so far, by one of the metrics.
    pub(crate) fn best(&self, metric: Metric, index: usize) -> Option<Best> {
        self.evaluations.best(metric, index)
    }

    /// Evaluations so far.
    pub(crate) fn evaluated(&self) -> usize {
        self.evaluations.len()
    }

    /// Whether the run ends here, because of what the evaluations say, or as planned.
    pub(crate) fn end_here(&mut self, early: bool) {
        self.total = if early { self.position.step } else { self.calendar.total };
    }

    /// Goes back to, or on from, that many steps: the last one may have to be done again, or several, and
    /// with them the ends of epochs.
    pub(crate) fn move_to(&mut self, step: u64) {
        if step < self.known_from {
            (self.known_from, self.covered_from, self.earlier) = (step, step, Meter::default());
            (self.before, self.summed_before) = (Meter::default(), (0, 0));
        }
        if step < self.recorded {
            self.record_again(step - self.calendar.position(step).step_in_epoch as u64);
        }
        self.waiting.clear();
        self.summed.retain(|(summed, _)| *summed < step);
        if step != self.position.step {
            self.steps.retain(|row| row.step < step);
            self.waiting.retain(|(row, _)| row.step < step);
            self.position = self.calendar.position(step);
            self.sum_epoch();
        }
    }

    /// Sums up the epoch that runs, or has just ended, from what is known of it.
    pub(crate) fn sum_epoch(&mut self) {
        let first = self.first_of_epoch();
        self.epoch = if self.known_from > first { self.earlier.clone() } else { Meter::default() };
        self.steps.iter().filter(|row| row.step >= first).for_each(|row| self.epoch.add(row));
    }

    /// The first step of the epoch that runs, or has just ended.
    pub(crate) fn first_of_epoch(&self) -> u64 {
        self.calendar.first_of_epoch(self.position.step)
    }

    /// The last step of an epoch, which counts from 1.
    pub(crate) fn last_step_of(&self, epoch: usize) -> u64 {
        self.calendar.last_step_of(epoch)
    }

    /// Epochs begun.
    pub(crate) fn epochs_begun(&self) -> usize {
        self.calendar.epochs_begun(self.position.step)
    }

    /// Whether all steps of the run are done.
    pub(crate) fn is_over(&self) -> bool {
        self.position.step >= self.total
    }

    /// Whether an epoch or the run has ended here.
    pub(crate) fn has_ended(&self) -> bool {
        self.position.step_in_epoch == 0 || self.is_over()
    }

    /// Whether an epoch, or the run, has ended since figures were last written.
    pub(crate) fn is_unrecorded(&self) -> bool {
        self.has_ended() && self.position.step > self.recorded
    }

    /// Steps done when the figures of an epoch were last written.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Some worker has written figures up to step `recorded` only, so all make the later ones again.
    pub(crate) fn record_again(&mut self, recorded: u64) {
        self.recorded = recorded;
        let epochs = self.recorded_epochs();
        self.epochs.retain(|row| row.epoch <= epochs);
        self.evaluations.forget_after(recorded);
    }
}

/// The number of the last steps of which all is kept.
const KEPT: usize = 16_384;

/// What is not kept of all steps, once that is as much as is kept.
fn surplus<T>(all: &mut Vec<T>) -> Vec<T> {
    if all.len() < 2 * KEPT { Vec::new() } else { all.drain(..KEPT).collect() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Steps of an epoch.
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

    /// As a worker sees it, to which its own islands' loss is known at first.
    fn row(step: u64) -> StepRow {
        StepRow { loss: -1.0, ..unseen(&last(step), 0) }
    }

    fn unseen(last: &LastStep, epoch: usize) -> StepRow {
        StepRow::unseen(last, epoch, 0.1, Duration::from_millis(100 * (last.step + 1)))
    }

    /// What a worker knows that has seen two rounds of three steps, and `more` steps of the third.
    fn seen(more: u64) -> Progress {
        let mut progress = Progress::at(0, Calendar::for_tests(STEPS, 100));
        for step in 0..6 + more {
            let ends = step < 6 && step % 3 == 2;
            let known = if ends { (step - 2..=step).map(last).collect() } else { Vec::new() };
            let report = StepReport { known, summed_bytes: 4 * u64::from(ends), ..StepReport::default() };
            for (row, _) in progress.settle(row(step), &report) {
                progress.add_step(row);
            }
        }
        progress
    }

    /// The numbers, losses and epochs of all rows.
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
                let report = StepReport { known: vec![last(step)], summed_bytes: 4, ..StepReport::default() };
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
            // A step that is done again: the epoch is summed anew.
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
            // Of the epoch that runs.
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
