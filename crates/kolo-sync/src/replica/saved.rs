//! The state of a core that checkpoints and copies hold, and resuming from it.

use super::core::Core;
use super::handover::progress::Handover;
use super::notes::Notes;
use kolo_reduction::Error;
use kolo_reduction::transform::States;
use kolo_step::{LossScaler, NoiseScale};
use kolo_values::Undo;

impl Core {
    /// Returns true if ranks hold state that could die with them.
    pub fn keeps_state(&self) -> bool {
        self.config.elastic && (self.config.reduction.keeps_state() || self.traits().has_private_state())
    }

    /// Applies all updates of the last step, and returns an error if a step failed when half of them were
    /// applied.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank), or a step is halfway.
    pub fn expect_whole_step(&mut self) -> Result<(), Error> {
        self.apply_outstanding()?;
        match self.is_halfway() {
            true => {
                let problem = "the last step has failed halfway; repeat it before you save a checkpoint";
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
        self.weights.check_state(step)?;
        self.check_store()
    }

    /// True for each tensor that was not finite when training began.
    pub fn given_not_finite(&self) -> &[bool] {
        self.weights.overflow.given()
    }

    /// Returns an error if the reduction keeps state of shards that this rank does not compute, or if other
    /// ranks hold parts of the optimizer's state.
    ///
    /// # Errors
    ///
    /// [`Error::ResidualsElsewhere`], or [`Error::StateDivided`].
    pub fn expect_all_shards(&self) -> Result<(), Error> {
        if self.is_divided() {
            return Err(Error::StateDivided);
        }
        match self.step.shards().len() < self.shards_with_state() {
            true => Err(Error::ResidualsElsewhere { reduction: self.config.reduction.name().into() }),
            false => Ok(()),
        }
    }

    /// Returns true if each rank holds a part of the optimizer's state only.
    pub fn is_divided(&self) -> bool {
        self.weights.share.is_some() && self.ranks.group.world_size() > 1
    }

    /// Number of shards of a step, if the reduction keeps state for each of them; else 0.
    pub fn shards_with_state(&self) -> usize {
        if self.config.reduction.shard_state().is_empty() { 0 } else { self.ranks.shards }
    }

    /// Resets all state that a checkpoint restores.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or memory allocation failed.
    pub fn begin_anew(&mut self) -> Result<(), Error> {
        self.apply_outstanding()?;
        self.clear_state()?;
        self.weights.init_optimizer();
        self.check_store()?;
        self.set_notes(self.first_notes())?;
        self.gathered = None;
        self.handover = Handover::default();
        self.weights.undo = self.weights.undo.is_some().then(|| Undo::new(&self.weights.layout));
        self.begin_steps(self.ranks.group.clone(), vec![1; self.weights.layout.spans().len()])
    }

    /// Same as `Replica::averages`.
    pub fn averages(&mut self) -> Result<Option<Vec<f32>>, Error> {
        self.apply_outstanding()?;
        self.weights.averages()
    }

    /// Sets the number of steps done, after all ranks have read the state; the steps' results are unknown.
    pub fn set_steps(&mut self, steps: u64) {
        self.weights.publish(true);
        self.progress.steps = steps;
        self.handover.kept = None;
        self.set_last_steps(Vec::new());
    }

    /// Same as `Replica::noise_scale`.
    pub fn noise_scale(&mut self) -> Result<Option<NoiseScale>, Error> {
        self.apply_outstanding()?;
        Ok(self.observers.noise.is_on().then_some(self.observers.noise.known))
    }

    /// Returns the notes on this core.
    pub fn notes(&self) -> Notes {
        Notes {
            uses: self.step.expected_uses().to_vec(),
            noise_scale: self.observers.noise.known,
            loss_scale: self.scaler.now(),
            transforms: self.transforms.states(),
        }
    }

    /// Returns the notes on a core that begins.
    pub fn first_notes(&self) -> Notes {
        Notes {
            uses: vec![1; self.weights.layout.spans().len()],
            noise_scale: NoiseScale::default(),
            loss_scale: LossScaler::new(self.config.loss_scaling).now(),
            transforms: States::new(),
        }
    }

    /// Continues from the notes on a core of another rank, a checkpoint or a copy.
    ///
    /// # Errors
    ///
    /// A gradient transform cannot continue from its state (naming the transform).
    pub fn set_notes(&mut self, notes: Notes) -> Result<(), Error> {
        let Notes { uses, noise_scale, loss_scale, transforms } = notes;
        self.step.expect_uses(uses);
        self.observers.noise.known = noise_scale;
        self.scaler.take_over(loss_scale);
        self.transforms.take_over(&self.weights.layout, transforms)
    }
}
