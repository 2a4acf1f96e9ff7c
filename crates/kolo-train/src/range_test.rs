//! The learning-rate range test (Smith 2017, [arXiv:1506.01186](https://arxiv.org/abs/1506.01186), section
//! 3.3), in the form of fastai: the rate grows by the same factor in each step, until the loss diverges.

use std::sync::{Arc, Mutex, PoisonError};

use kolo_comm::schedule::words::counted;
use kolo_ddp::{ParamGroup, Sampler, Selector};
use kolo_metrics::StepRow;
use kolo_recipe::{RateConfig, Recipe};

use crate::error::Error;
use crate::flow;

/// Rate of the first step, and of the last.
const RATES: [f64; 2] = [1e-7, 10.0];
/// Share of the earlier losses in a smoothed one.
const SMOOTHING: f64 = 0.9;
/// Multiple of the lowest smoothed loss at which the test ends.
const DIVERGED: f64 = 4.0;
/// Part of the rate with the lowest smoothed loss that is suggested.
const PART: f64 = 0.1;

/// A range test in place of a training: its length, and the losses that rank 0 has seen. Clones share them.
///
/// A [`Job`](crate::Job) with one evaluates nothing, and takes its rates instead of the recipe's. The losses
/// are the same for any number of workers.
///
/// ```
/// use kolo_train::RangeTest;
///
/// let test = RangeTest::new(9);
/// assert_eq!(test.rate(0), 1e-7);
/// assert!((test.rate(4) - 1e-3).abs() < 1e-9); // the geometric mean of 1e-7 and 10
/// ```
#[derive(Clone, Debug)]
pub struct RangeTest {
    steps: u64,
    /// The steps; those before this worker was rank 0 are missing.
    seen: Arc<Mutex<Vec<Seen>>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    step: u64,
    loss: f64,
    /// True if the step changed nothing, because it overflowed.
    skipped: bool,
}

/// Losses by rising learning rate.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeCurve {
    /// The steps until the loss has diverged, or all; none if the first loss is not finite.
    pub points: Vec<RangePoint>,
    /// The step whose loss has diverged, which ended the test.
    pub diverged: Option<RangePoint>,
    /// Index of the point with the lowest smoothed loss. `None` if that is the first one: no rate was good.
    pub lowest: Option<usize>,
    /// Steps that changed nothing, because they overflowed, of those with a point.
    pub skipped: usize,
}

/// A step of a range test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangePoint {
    /// Learning rate.
    pub rate: f64,
    /// Mean loss over the global batch, before the step.
    pub loss: f64,
    /// Mean of the losses so far, of which each counts 0.9 times as much as the next: with s₀ = 0 and
    /// sₜ = 0.9 sₜ₋₁ + 0.1 lossₜ it is sₜ / (1 − 0.9ᵗ).
    pub smoothed: f64,
}

impl RangeTest {
    /// Makes a test of so many steps, at least two, from the rate 1e-7 to 10.
    pub fn new(steps: u64) -> Self {
        RangeTest { steps: steps.max(2), seen: Arc::default() }
    }

    /// Returns the learning rate of a step, from 0: a · (b / a)^(step / (steps − 1)).
    pub fn rate(&self, step: u64) -> f64 {
        let [first, last] = RATES;
        let share = (step as f64 / (self.steps - 1) as f64).min(1.0);
        first * libm::pow(last / first, share)
    }

    /// Returns the curve of the losses; `None` if this worker was never rank 0.
    ///
    /// # Errors
    ///
    /// An earlier rank 0 died, and the first losses with it.
    pub fn curve(&self) -> Result<Option<RangeCurve>, Error> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.iter().enumerate().any(|(at, seen)| seen.step != at as u64) {
            return Err(Error::RangeTestCut);
        }
        let curve = || {
            let curve = RangeCurve::of(seen.iter().map(|seen| (self.rate(seen.step), seen.loss)));
            let points = &seen[..curve.points.len()];
            RangeCurve { skipped: points.iter().filter(|seen| seen.skipped).count(), ..curve }
        };
        Ok((!seen.is_empty()).then(curve))
    }

    /// Keeps the loss of a step. Returns true if the test is over: the loss has diverged.
    pub(crate) fn note(&self, row: &StepRow) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Steps may be repeated after a death.
        seen.retain(|seen| seen.step < row.step);
        seen.push(Seen { step: row.step, loss: row.loss, skipped: row.skipped });
        RangeCurve::of(seen.iter().map(|seen| (1.0, seen.loss))).diverged.is_some()
    }

    /// Puts the test into a recipe over so many samples: its steps, and nothing that needs an evaluation.
    pub(crate) fn fit(&self, recipe: &mut Recipe, samples: usize) -> Result<(), Error> {
        if !flow::has_one_model(recipe) {
            let problem = "the workers have one model only after some of the steps, so that no loss is that of all; leave --sync out";
            return Err(Error::setting("--find-lr with --sync", &recipe.sync.mode, problem));
        }
        if let Some(hours) = recipe.max_hours {
            let problem = "a range test has no checkpoint to continue from; leave --max-hours out";
            return Err(Error::setting("--find-lr with --max-hours", hours, problem));
        }
        if trains_nothing(&recipe.groups) {
            let problem = "no rate changes a weight then; leave the group out";
            return Err(Error::setting("--find-lr with --group", "*:lr_scale=0", problem));
        }
        recipe.rate = RateConfig::default();
        (recipe.best_metric, recipe.patience, recipe.eval_steps) = (None, None, None);
        let Recipe { batch_size, shards, seed, .. } = recipe;
        let growth = &recipe.large_batch.grow_batch;
        let sampler = Sampler::growing(samples, *batch_size, growth, *shards, *seed);
        let sampler = sampler.map_err(|error| Error::Refused(error.into()))?;
        (recipe.steps, recipe.epochs) = (Some(self.steps), 1);
        while sampler.steps_before(recipe.epochs) < self.steps {
            recipe.epochs += 1;
        }
        Ok(())
    }
}

/// True if a group freezes all tensors by `lr_scale=0`, and none after it has a rate again.
fn trains_nothing(groups: &[ParamGroup]) -> bool {
    let all = Selector::Pattern("*".into());
    let frozen = groups.iter().rposition(|group| group.lr_scale == Some(0.0) && group.tensors.contains(&all));
    let has_rate = |group: &ParamGroup| group.lr_scale.is_some_and(|scale| scale != 0.0);
    frozen.is_some_and(|at| !groups[at + 1..].iter().any(has_rate))
}

impl RangeCurve {
    fn of(losses: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let (mut points, mut sum, mut weight) = (Vec::<RangePoint>::new(), 0.0, 0.0);
        let (mut lowest, mut diverged) = (0, None);
        for (rate, loss) in losses {
            sum = SMOOTHING * sum + (1.0 - SMOOTHING) * loss;
            weight = SMOOTHING * weight + (1.0 - SMOOTHING);
            let smoothed = sum / weight;
            let best = points.get(lowest).map_or(smoothed, |point| point.smoothed);
            if !smoothed.is_finite() || smoothed > DIVERGED * best {
                diverged = Some(RangePoint { rate, loss, smoothed });
                break;
            }
            if smoothed < best {
                lowest = points.len();
            }
            points.push(RangePoint { rate, loss, smoothed });
        }
        RangeCurve { points, diverged, lowest: Some(lowest).filter(|lowest| *lowest > 0), skipped: 0 }
    }

    /// Returns the steps as a table in CSV.
    pub fn csv(&self) -> String {
        let rows = self.points.iter().chain(&self.diverged).enumerate();
        let row = |(step, point): (usize, &RangePoint)| {
            format!("{step},{:?},{:?},{:?}\n", point.rate, point.loss, point.smoothed)
        };
        String::from("step,learning_rate,loss,smoothed_loss\n") + &rows.map(row).collect::<String>()
    }

    /// Describes the suggested rate, or why there is none.
    pub fn words(&self) -> String {
        if self.is_mostly_skipped() {
            return format!(
                "no rate is suggested: {} of {} trained nothing, because they overflowed; give a smaller --loss-scale, \
                 or --precision bf16",
                self.skipped,
                counted(self.points.len(), "step")
            );
        }
        match (self.lowest, self.suggestion()) {
            (Some(lowest), Some(rate)) => {
                let lowest = self.points[lowest];
                format!(
                    "suggested: --lr {rate:.1e}, a tenth of {:.1e}, at which the smoothed loss was lowest ({:.4}; at first {:.4})",
                    lowest.rate, lowest.smoothed, self.points[0].smoothed
                )
            }
            _ => "no rate is suggested: the smoothed loss was lowest at the first one; look at the data and the model".into(),
        }
    }

    /// True if more than half of the steps trained nothing, so that the losses tell nothing of the rates.
    pub fn is_mostly_skipped(&self) -> bool {
        self.skipped > self.points.len() / 2
    }

    /// Suggests a learning rate: a tenth of the one with the lowest smoothed loss. `None` if most steps
    /// trained nothing.
    pub fn suggestion(&self) -> Option<f64> {
        self.lowest.filter(|_| !self.is_mostly_skipped()).map(|lowest| PART * self.points[lowest].rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_without_any_rate_are_found() {
        let group = |text: &str| text.parse::<ParamGroup>().unwrap();
        for (groups, expected) in [
            (&[][..], false),
            (&["*:lr_scale=0"], true),
            (&["fc.*:lr_scale=0"], false),
            (&["*:weight_decay=0"], false),
            (&["*:lr_scale=0", "fc.*:lr_scale=10"], false),
            (&["fc.*:lr_scale=10", "*:lr_scale=0", "fc.*:weight_decay=0"], true),
        ] {
            let groups: Vec<ParamGroup> = groups.iter().map(|text| group(text)).collect();
            assert_eq!(trains_nothing(&groups), expected, "{groups:?}");
        }
    }

    #[test]
    fn rates_grow_by_the_same_factor() {
        let test = RangeTest::new(9);
        for (step, expected) in [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0].into_iter().enumerate() {
            assert!((test.rate(step as u64) / expected - 1.0).abs() < 1e-12, "{step}");
        }
    }

    /// 4, then (0.9 · 0.4 + 0.1 · 2) / 0.19 = 56 / 19, then (0.9 · 0.56 + 0.1 · 1) / 0.271 = 604 / 271; the
    /// fourth is (0.9 · 0.604 + 0.1 · 60) / 0.3439 = 19.0…, more than four times the third.
    #[test]
    fn the_suggestion_is_a_tenth_of_the_rate_with_the_lowest_smoothed_loss() {
        let curve = RangeCurve::of([(0.01, 4.0), (0.1, 2.0), (1.0, 1.0), (10.0, 60.0), (100.0, 1.0)]);
        let expected = [4.0, 56.0 / 19.0, 604.0 / 271.0];
        assert_eq!(curve.points.len(), 3);
        let diverged = curve.diverged.unwrap();
        assert_eq!((diverged.rate, diverged.loss), (10.0, 60.0));
        assert!((diverged.smoothed - (0.9 * 0.604 + 6.0) / 0.3439).abs() < 1e-12, "{diverged:?}");
        for (point, expected) in curve.points.iter().zip(expected) {
            assert!((point.smoothed - expected).abs() < 1e-12, "{point:?} {expected}");
        }
        assert_eq!((curve.lowest, curve.suggestion()), (Some(2), Some(0.1)));
        let skipped = |skipped| RangeCurve { skipped, ..curve.clone() }.suggestion();
        assert_eq!((skipped(1), skipped(2)), (Some(0.1), None));
        let rising = RangeCurve::of([(0.01, 1.0), (0.1, 2.0), (1.0, f64::NAN), (10.0, 0.1)]);
        assert_eq!((rising.points.len(), rising.suggestion()), (2, None));
    }
}
