//! What of a replica a checkpoint holds, and how it goes on from one.

use std::ops::Range;
use std::sync::Arc;

use kolo_checkpoint::{Part, Reader, Set, state_prefix};

use super::core::Core;
use super::handle::Replica;
use super::undo::Undo;
use super::weights::Weights;
use crate::error::Error;
use crate::loss_scaling::LossScale;
use crate::noise_scale::NoiseScale;
use crate::reduction::Reducer;
use crate::sync::mode::Saved;

impl Replica {
    /// Before rank 0 takes a checkpoint of a job whose reduction keeps something for each shard, such as
    /// residuals, or whose islands or servers have optimizers of their own: brings all of that there.
    /// All ranks call it after the same step. Does nothing where there is nothing to bring.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or the optimizer's state is not finite, on all ranks alike
    /// (naming the parameter).
    pub fn gather_residuals(&mut self) -> Result<(), Error> {
        let core = &mut self.core;
        core.check_state()?;
        if !core.config.reduction.shard_state().is_empty() {
            core.apply_outstanding()?;
            core.gathered = Some((core.progress.steps, core.step.gather_shard_state()?));
        }
        if self.is_synchronised() { self.mode.gather(&mut self.core) } else { Ok(()) }
    }

    /// Forgets all that a checkpoint has to bring back: what is left is what a process has that has just
    /// joined these ranks. All ranks call it after the same step.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or memory cannot be had.
    pub(crate) fn begin_anew(&mut self) -> Result<(), Error> {
        self.core.begin_anew()?;
        self.mode.form(&mut self.core, 0)?;
        self.resume(0)
    }

    /// All ranks go on from a checkpoint that was made after so many steps. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(crate) fn resume(&mut self, steps: u64) -> Result<(), Error> {
        self.core.set_steps(steps);
        self.forget_backups()
    }
}

impl Core {
    /// What a checkpoint holds where the core is all that there is.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank), or a step has failed when half of it was made.
    pub(crate) fn save(&mut self) -> Result<Saved, Error> {
        self.expect_whole_step()?;
        let states =
            self.weights.optimizer.state().into_iter().map(|(name, values)| Part::state(name, values));
        let parts = [Part::weights(&self.weights.values)].into_iter().chain(states).collect();
        Ok(Saved { parts, uses: self.step.expected_uses().to_vec(), entries: Vec::new() })
    }

    /// Reads what [`Core::save`] holds.
    ///
    /// # Errors
    ///
    /// Names the file that is damaged or missing, or the first tensor that does not fit.
    pub(crate) fn load(&mut self, reader: &Reader) -> Result<(), Error> {
        self.expect_whole_step()?;
        reader.read(Set::Weights, "", &self.weights.layout, 0, &mut self.weights.values)?;
        reader.expect_no_others(&self.weights.layout)?;
        let states = self.weights.optimizer.state().into_iter();
        let states = states.map(|(name, values)| (state_prefix(name), values)).collect();
        Ok(reader.read_all(Set::Optimizer, &self.weights.layout, 0, states)?)
    }

    /// Makes all updates of the last step, and refuses one that has failed when half of it was made.
    fn expect_whole_step(&mut self) -> Result<(), Error> {
        self.apply_outstanding()?;
        match self.is_halfway() {
            true => {
                let problem =
                    "a step has failed when half of it was made; do it again before saving a checkpoint";
                Err(Error::Setting(problem.into()))
            }
            false => Ok(()),
        }
    }

    /// Looks at what all ranks have alike and a checkpoint holds, so that all of them hear of what is wrong.
    fn check_state(&mut self) -> Result<(), Error> {
        self.apply_outstanding()?;
        let Some(step) = self.progress.steps.checked_sub(1).filter(|_| !self.ranks.server) else {
            return Ok(());
        };
        let Weights { layout, values, optimizer, overflow, .. } = &mut self.weights;
        overflow.check_state(step, layout, values, &mut **optimizer)
    }

    /// For each tensor whether it was not finite when training began.
    pub(crate) fn given_not_finite(&self) -> &[bool] {
        self.weights.overflow.given()
    }

    /// What the reduction keeps for each shard of the job, for a checkpoint; nothing if it keeps nothing. For
    /// each name of [`Reducer::shard_state`](crate::reduction::Reducer::shard_state) the values in the order
    /// of flat memory, one after another.
    pub(crate) fn all_shard_state(&mut self) -> Result<Vec<Vec<f32>>, Error> {
        self.apply_outstanding()?;
        match &self.gathered {
            Some((steps, all)) if *steps == self.progress.steps && all.len() == self.ranks.shards => {
                Ok(all.clone())
            }
            _ if self.step.shards().len() == self.ranks.shards
                || self.config.reduction.shard_state().is_empty() =>
            {
                Ok(self.step.shard_state())
            }
            _ => Err(Error::ResidualsElsewhere { reduction: self.config.reduction.name().into() }),
        }
    }

    /// What the reduction keeps that is the same on all ranks: for each name of
    /// [`Reducer::common_state`](crate::reduction::Reducer::common_state) the values in the order of flat
    /// memory.
    pub(crate) fn common_state(&mut self) -> Result<Vec<Vec<f32>>, Error> {
        self.apply_outstanding()?;
        Ok(self.step.common_state())
    }

    /// How the gradients of all shards become what the optimizer sees.
    pub(crate) fn reducer(&self) -> &Arc<dyn Reducer> {
        &self.config.reduction
    }

    /// The shards for which this rank's reduction keeps something: where there are islands, those that this
    /// rank speaks for.
    pub(crate) fn reduced_shards(&self) -> Range<usize> {
        self.step.shards()
    }

    /// How many shards a step has, if the reduction keeps something for each of them.
    pub(crate) fn shards_with_state(&self) -> usize {
        if self.config.reduction.shard_state().is_empty() { 0 } else { self.ranks.shards }
    }

    /// What the gradient's transforms know from the steps so far, each number in words, if a checkpoint has to
    /// say so.
    pub(crate) fn saved_transforms(&self) -> Option<Vec<Vec<String>>> {
        let words = |state: &Vec<f64>| state.iter().map(f64::to_string).collect();
        let states = self.transforms.states();
        states.iter().any(|state| !state.is_empty()).then(|| states.iter().map(words).collect())
    }

    /// The gradient's transforms go on from what a checkpoint says of them; from the beginning where it says
    /// nothing.
    pub(crate) fn set_transforms(&mut self, saved: Option<Vec<Vec<String>>>) -> Result<(), Error> {
        let number = |word: &String| word.parse::<f64>().map_err(|_| word.clone());
        let state = |words: &Vec<String>| words.iter().map(number).collect::<Result<Vec<_>, _>>();
        let states: Result<Vec<_>, _> = saved.iter().flatten().map(state).collect();
        let states = states.map_err(|word| {
            Error::Setting(format!(
                "the checkpoint says `{word}` where a gradient transform has kept a number"
            ))
        })?;
        self.transforms.take_over(&self.weights.layout, states)
    }

    /// Where loss scaling stands, if a checkpoint has to say so.
    pub(crate) fn saved_loss_scale(&self) -> Option<LossScale> {
        let now = self.scaler.now();
        (self.scaler.is_on() || now.skipped_steps > 0).then_some(now)
    }

    /// Goes on where loss scaling stood; from the beginning where a checkpoint does not say.
    pub(crate) fn set_loss_scale(&mut self, saved: Option<LossScale>) {
        match saved {
            Some(saved) => self.scaler.take_over(saved),
            None => self.scaler.reset(),
        }
    }

    /// Forgets all that a checkpoint has to bring back.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or memory cannot be had.
    fn begin_anew(&mut self) -> Result<(), Error> {
        self.apply_outstanding()?;
        self.weights.values.fill(0.0);
        self.weights.optimizer.init(&self.weights.layout);
        self.transforms.init(&self.weights.layout);
        self.set_noise_scale(None);
        self.gathered = None;
        self.scaler.reset();
        self.weights.undo = self.weights.undo.is_some().then(|| Undo::new(&self.weights.layout));
        self.begin_steps(self.ranks.group.clone(), vec![1; self.weights.layout.spans().len()])
    }

    /// The job goes on after so many steps, of which nothing else is known.
    pub(crate) fn set_steps(&mut self, steps: u64) {
        self.progress.steps = steps;
        self.set_last_steps(Vec::new());
    }

    /// As [`Replica::noise_scale`](crate::Replica::noise_scale).
    pub(crate) fn noise_scale(&mut self) -> Result<Option<NoiseScale>, Error> {
        self.apply_outstanding()?;
        Ok(self.observers.noise.is_on().then_some(self.observers.noise.known))
    }

    /// As a checkpoint says it.
    pub(crate) fn set_noise_scale(&mut self, known: Option<NoiseScale>) {
        self.observers.noise.known = known.unwrap_or_default();
    }
}
