//! A predicted step beside the measured one.

use kolo_run_folder::Run;

use crate::analysis::Pace;
use crate::units::{percent, plural, seconds};

/// Predicted step for a number of workers, as in the output of `kolo plan step --json`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedStep {
    /// Number of workers.
    pub workers: usize,
    /// Seconds of a step, including the wait for the slowest worker.
    pub seconds: f64,
    /// Seconds of a step in which workers wait for communication.
    pub exposed: f64,
}

/// A prediction with the measurement of its run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) predicted: PredictedStep,
    /// Seconds of the median step.
    pub(crate) seconds: f64,
    /// Seconds of waiting for communication in the median step.
    pub(crate) exposed: f64,
}

impl Outcome {
    /// Returns `None` if there is no prediction for the run's number of workers, or the run has too few
    /// steps.
    pub(crate) fn of(run: &Run, predicted: &[PredictedStep]) -> Option<Self> {
        let workers = run.world_size()?;
        let predicted = *predicted.iter().find(|step| step.workers == workers)?;
        let pace = Pace::of(run)?;
        Some(Outcome { predicted, seconds: pace.median, exposed: pace.exposed_a_step() })
    }

    /// Error of the prediction relative to the measurement: positive if a step takes less time than predicted.
    pub(crate) fn error(&self) -> f64 {
        self.predicted.seconds / self.seconds - 1.0
    }

    pub(crate) fn sentence(&self) -> String {
        let PredictedStep { workers, seconds: predicted, .. } = self.predicted;
        let by = percent(self.error().abs());
        let less = if self.error() < 0.0 { "less" } else { "more" };
        let measured = seconds(self.seconds);
        let workers = plural(workers, "worker");
        format!("a step of {workers} takes {measured}; {}, {by} {less}, were predicted", seconds(predicted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_prediction_for_as_many_workers_is_the_one() {
        let of = |workers, seconds| PredictedStep { workers, seconds, exposed: 0.0 };
        let steps = [of(1, 0.02), of(2, 0.025), of(4, 0.05)];
        let outcome = Outcome::of(&example::run(100), &steps).unwrap();
        assert_eq!(outcome.predicted, steps[1]);
        assert!((outcome.error() + 6.0 / 31.0).abs() < 1e-9, "{outcome:?}");
        assert_eq!(outcome.sentence(), "a step of 2 workers takes 31 ms; 25 ms, 19.4 % less, were predicted");
        let slow = [of(2, 0.062)];
        assert!(
            Outcome::of(&example::run(100), &slow).unwrap().sentence().contains("62 ms, 100 % more, were")
        );
        assert!(Outcome::of(&example::run(100), &steps[2..]).is_none(), "none for two");
        assert!(Outcome::of(&example::run(12), &steps).is_none(), "too young");
    }
}
