//! The state of a core that a checkpoint holds, and resuming from it.

use std::ops::Range;
use std::sync::Arc;

use kolo_checkpoint::{Part, Reader, Set, state_prefix};

use super::core::Core;
use super::undo::Undo;
use super::weights::Weights;
use crate::sync::mode::Saved;
use kolo_reduction::Error;
use kolo_reduction::reduction::Reducer;
use kolo_step::{LossScale, NoiseScale};

impl Core {
    /// Returns true if ranks hold state that could die with them.
    pub fn keeps_state(&self) -> bool {
        self.config.elastic && (self.config.reduction.keeps_state() || self.traits().has_private_state())
    }

    /// Number of values that the reduction keeps for one shard.
    pub fn shard_state_len(&self) -> usize {
        self.config.reduction.shard_state().len() * self.weights.layout.len()
    }

    /// Returns the content of a checkpoint in a job whose mode has no state besides the core.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank), or a step failed when half of its updates were
    /// applied.
    pub(crate) fn save(&mut self) -> Result<Saved, Error> {
        self.expect_whole_step()?;
        let states =
            self.weights.optimizer.state().into_iter().map(|(name, values)| Part::state(name, values));
        let parts = [Part::weights(&self.weights.values)].into_iter().chain(states).collect();
        Ok(Saved { parts, uses: self.step.expected_uses().to_vec(), entries: Vec::new() })
    }

    /// Reads the content that [`Core::save`] returned.
    ///
    /// # Errors
    ///
    /// A file is damaged or missing (naming it), or a tensor does not fit (naming the first).
    pub(crate) fn load(&mut self, reader: &Reader) -> Result<(), Error> {
        self.expect_whole_step()?;
        reader.read(Set::Weights, "", &self.weights.layout, 0, &mut self.weights.values)?;
        reader.expect_no_others(&self.weights.layout)?;
        let states = self.weights.optimizer.state().into_iter();
        let states = states.map(|(name, values)| (state_prefix(name), values)).collect();
        Ok(reader.read_all(Set::Optimizer, &self.weights.layout, 0, states)?)
    }

    /// Applies all updates of the last step, and returns an error if a step failed when half of them were
    /// applied.
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

    /// Checks the state that all ranks have alike and a checkpoint holds, so that all of them return the
    /// same error.
    pub fn check_state(&mut self) -> Result<(), Error> {
        self.apply_outstanding()?;
        let Some(step) = self.progress.steps.checked_sub(1).filter(|_| !self.ranks.server) else {
            return Ok(());
        };
        let Weights { layout, values, optimizer, overflow, .. } = &mut self.weights;
        overflow.check_state(step, layout, values, &mut **optimizer)
    }

    /// True for each tensor that was not finite when training began.
    pub fn given_not_finite(&self) -> &[bool] {
        self.weights.overflow.given()
    }

    /// Returns the reduction's state of each shard of the job, for a checkpoint; empty if it keeps none. For
    /// each name of [`Reducer::shard_state`](kolo_reduction::reduction::Reducer::shard_state) it has the
    /// values in the order of flat memory, one after another.
    pub fn all_shard_state(&mut self) -> Result<Vec<Vec<f32>>, Error> {
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

    /// Returns the reduction's state that is the same on all ranks: for each name of
    /// [`Reducer::common_state`](kolo_reduction::reduction::Reducer::common_state) the values in the order of
    /// flat memory.
    pub fn common_state(&mut self) -> Result<Vec<Vec<f32>>, Error> {
        self.apply_outstanding()?;
        Ok(self.step.common_state())
    }

    /// Reduction that turns the gradients of all shards into the optimizer's input.
    pub fn reducer(&self) -> &Arc<dyn Reducer> {
        &self.config.reduction
    }

    /// Shards for which this rank's reduction keeps state; with islands, the islands that this rank
    /// represents.
    pub fn reduced_shards(&self) -> Range<usize> {
        self.step.shards()
    }

    /// Number of shards of a step, if the reduction keeps state for each of them; else 0.
    pub fn shards_with_state(&self) -> usize {
        if self.config.reduction.shard_state().is_empty() { 0 } else { self.ranks.shards }
    }

    /// Returns the state of the gradient transforms, each number as text, if there is any to save.
    pub fn saved_transforms(&self) -> Option<Vec<Vec<String>>> {
        let words = |state: &Vec<f64>| state.iter().map(f64::to_string).collect();
        let states = self.transforms.states();
        states.iter().any(|state| !state.is_empty()).then(|| states.iter().map(words).collect())
    }

    /// Restores the gradient transforms from a checkpoint's entry; without one they begin anew.
    pub fn set_transforms(&mut self, saved: Option<Vec<Vec<String>>>) -> Result<(), Error> {
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

    /// Returns the state of loss scaling, if a checkpoint must hold it.
    pub fn saved_loss_scale(&self) -> Option<LossScale> {
        let now = self.scaler.now();
        (self.scaler.is_on() || now.skipped_steps > 0).then_some(now)
    }

    /// Restores the state of loss scaling; resets it if the checkpoint has none.
    pub fn set_loss_scale(&mut self, saved: Option<LossScale>) {
        match saved {
            Some(saved) => self.scaler.take_over(saved),
            None => self.scaler.reset(),
        }
    }

    /// Resets all state that a checkpoint restores.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or memory allocation failed.
    pub fn begin_anew(&mut self) -> Result<(), Error> {
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

    /// Sets the number of steps done; their results are unknown.
    pub fn set_steps(&mut self, steps: u64) {
        self.progress.steps = steps;
        self.set_last_steps(Vec::new());
    }

    /// Same as `Replica::noise_scale`.
    pub fn noise_scale(&mut self) -> Result<Option<NoiseScale>, Error> {
        self.apply_outstanding()?;
        Ok(self.observers.noise.is_on().then_some(self.observers.noise.known))
    }

    /// Restores the noise scale; resets it if the checkpoint has none.
    pub fn set_noise_scale(&mut self, known: Option<NoiseScale>) {
        self.observers.noise.known = known.unwrap_or_default();
    }
}
