//! Parts of a run that the program brings itself: optimizer, reduction, schedule and gradient transforms.

use std::sync::Arc;

use kolo_ddp::optimizer::{Optimizer, Settings};
use kolo_ddp::reduction::Reducer;
use kolo_ddp::{Replica, Sampler};
use kolo_recipe::{OwnParts, Recipe};

use crate::error::Error;

/// Place of a step in a run, on which a learning rate may depend.
///
/// A rate that falls linearly to 0, for [`Trainer::schedule`](crate::Trainer::schedule):
///
/// ```
/// use kolo_train::SchedulePoint;
///
/// let linear = |point: SchedulePoint| 0.1 * (1.0 - point.progress);
/// assert_eq!(linear(SchedulePoint { step: 50, epoch: 2.5, progress: 0.5 }), 0.05);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SchedulePoint {
    /// Step of the run, from 0.
    pub step: u64,
    /// Epochs done before the step, with the share of the one that runs.
    pub epoch: f64,
    /// Share of all epochs of the recipe done before the step, from 0 to below 1. An earlier end by
    /// [`Recipe::steps`] does not change it.
    pub progress: f64,
}

impl SchedulePoint {
    pub(crate) fn of(step: u64, epochs: usize, sampler: &Sampler) -> Self {
        let epoch = sampler.work_before(step) / sampler.steps() as f64;
        SchedulePoint { step, epoch, progress: epoch / epochs as f64 }
    }
}

/// The program's own parts, until the worker takes them.
#[derive(Default)]
pub(crate) struct Own {
    pub(crate) optimizer: Option<Box<dyn Optimizer>>,
    pub(crate) reduction: Option<Arc<dyn Reducer>>,
    pub(crate) schedule: Option<Box<Schedule>>,
    /// Names, and functions that add the transforms to a replica.
    pub(crate) transforms: Vec<(String, Box<AddTransform>)>,
}

pub(crate) type Schedule = dyn Fn(SchedulePoint) -> f64;
pub(crate) type AddTransform = dyn FnOnce(&mut Replica);

impl Own {
    /// Puts the parts' names into the recipe of a run over so many samples. Refuses parts beside others that
    /// the recipe names, and a run that was begun with parts which are missing here.
    pub(crate) fn name_in(&self, recipe: &mut Recipe, samples: usize) -> Result<(), Error> {
        let usual = Recipe::default();
        let refused = |option, value: &dyn ToString, part: &str| {
            let problem = format!(
                "the program brings {part} of its own; leave the option at its default, or leave out {part}"
            );
            Err(Error::setting(option, value.to_string(), problem))
        };
        if self.optimizer.is_some() && recipe.optimizer != usual.optimizer {
            return refused("--optimizer", &recipe.optimizer.0, "an optimizer");
        }
        if self.reduction.is_some() && recipe.reduction != usual.reduction {
            return refused("--reduction", &recipe.reduction, "a reduction");
        }
        if self.schedule.is_some() && recipe.rate != usual.rate {
            let value = serde_json::to_string(&recipe.rate);
            return refused("rate =", &value.unwrap_or_default(), "a schedule of the learning rate");
        }
        let here = OwnParts {
            optimizer: self.optimizer.as_ref().map(|own| described(own.name(), &own.settings())),
            reduction: self.reduction.as_ref().map(|own| described(own.name(), &own.settings())),
            schedule: self.rates(recipe, samples)?,
            transforms: self.transforms.iter().map(|(name, _)| name.clone()).collect(),
        };
        let there = std::mem::take(&mut recipe.own);
        if !there.is_empty() && there != here {
            let words = |own: &OwnParts| {
                let text = serde_json::to_string(own).unwrap_or_default();
                if own.is_empty() { "none".into() } else { text }
            };
            return Err(Error::OtherParts { there: words(&there), here: words(&here) });
        }
        recipe.own = here;
        Ok(())
    }

    /// Returns the learning rates of the first, the middle and the last step of all epochs, as text: a
    /// function has no name.
    fn rates(&self, recipe: &Recipe, samples: usize) -> Result<Option<String>, Error> {
        let Some(schedule) = &self.schedule else { return Ok(None) };
        let Recipe { batch_size, shards, seed, epochs, .. } = recipe;
        let growth = &recipe.large_batch.grow_batch;
        let sampler = Sampler::growing(samples, *batch_size, growth, *shards, *seed);
        let sampler = sampler.map_err(|error| Error::Refused(error.into()))?;
        let steps = sampler.steps_before(*epochs);
        let mut rates = Vec::new();
        for step in [0, steps / 2, steps.saturating_sub(1)] {
            let rate = schedule(SchedulePoint::of(step, *epochs, &sampler));
            if rate < 0.0 || !(rate as f32).is_finite() {
                return Err(Error::Schedule { step, rate });
            }
            rates.push(rate.to_string());
        }
        Ok(Some(rates.join(", ")))
    }
}

pub(crate) fn described(name: &str, settings: &Settings) -> String {
    if settings.is_empty() { name.into() } else { format!("{name}:{settings}") }
}
