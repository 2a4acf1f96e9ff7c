//! Steps, averaged so that a figure has room for them.

use kolo_run_folder::{StepRow, mean};

/// A group of consecutive steps; its values are means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Seconds per step.
    pub(crate) seconds: f64,
    /// Seconds per step without waiting for communication.
    pub(crate) compute: f64,
    /// Seconds per step of backward passes, and of updates; parts of `compute`, 0 if not measured.
    pub(crate) backward: f64,
    pub(crate) optimizer: f64,
    /// Seconds per step of waiting while a bucket was being reduced.
    pub(crate) wire_wait: f64,
    /// Seconds per step of waiting for another rank, while no bucket was being reduced.
    pub(crate) rank_wait: f64,
    /// Seconds per step of communication behind other work.
    pub(crate) hidden: f64,
    /// Mean over the steps whose loss is a number.
    pub(crate) loss: Option<f64>,
    pub(crate) samples_per_second: f64,
    /// Learning rate of the last step.
    pub(crate) learning_rate: f64,
}

impl Column {
    fn of(steps: &[StepRow]) -> Option<Self> {
        let (first, last) = (steps.first()?, steps.last()?);
        let average = |value: fn(&StepRow) -> f64| mean(steps.iter().map(value)).unwrap_or(0.0);
        let seconds = average(|step| step.seconds);
        Some(Column {
            first: first.step,
            last: last.step,
            seconds,
            compute: average(StepRow::compute_seconds),
            backward: average(|step| step.backward_seconds),
            optimizer: average(|step| step.optimizer_seconds),
            wire_wait: average(StepRow::wire_wait_seconds),
            rank_wait: average(StepRow::rank_wait_seconds),
            hidden: average(StepRow::hidden_seconds),
            loss: mean(steps.iter().filter_map(|step| step.loss)),
            samples_per_second: average(|step| step.samples) / seconds.max(1e-9),
            learning_rate: last.learning_rate,
        })
    }

    /// Position on the axis of steps.
    pub(crate) fn middle(&self) -> f64 {
        self.first as f64 / 2.0 + self.last as f64 / 2.0
    }

    /// Returns the numbers of its steps.
    pub(crate) fn name(&self) -> String {
        if self.first == self.last {
            self.first.to_string()
        } else {
            format!("{}–{}", self.first, self.last)
        }
    }
}

/// Divides the steps into at most `most` columns of equally many steps; the last may have fewer.
pub(crate) fn columns(steps: &[StepRow], most: usize) -> Vec<Column> {
    let together = steps.len().div_ceil(most.max(1)).max(1);
    steps.chunks(together).filter_map(Column::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn columns_are_means_of_as_many_steps() {
        let mut run = example::run(1000);
        run.steps[0].loss = None;
        let all = columns(&run.steps, 300);
        assert_eq!((all.len(), all[0].name().as_str(), all[249].name().as_str()), (250, "0–3", "996–999"));
        assert_eq!(all[0].middle(), 1.5);
        assert!(all[0].loss.is_some_and(f64::is_finite));
        let one = &columns(&run.steps, 1000)[7];
        assert_eq!((one.name().as_str(), one.seconds), ("7", run.steps[7].seconds));
        assert!((one.compute + one.wire_wait + one.rank_wait - one.seconds).abs() < 1e-12);
        assert!(columns(&[], 300).is_empty());
    }
}
