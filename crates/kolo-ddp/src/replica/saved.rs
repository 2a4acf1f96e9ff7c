//! What of a replica a checkpoint holds, and how it goes on from one.

use super::Replica;
use super::undo::Undo;
use crate::error::Error;
use kolo_optim::{Layout, Optimizer};

impl Replica {
    /// What a checkpoint has to hold: the values and the optimizer's state, by name.
    pub(crate) fn parts(&mut self) -> Result<(&Layout, &mut [f32], &mut dyn Optimizer), Error> {
        self.apply_outstanding()?;
        if self.is_halfway() {
            let problem =
                "a step has failed when half of it was made; do it again before saving a checkpoint";
            return Err(Error::Setting(problem.into()));
        }
        Ok((&self.layout, &mut self.values, &mut *self.optimizer))
    }

    /// Before rank 0 takes a checkpoint of a job whose reduction keeps residuals: brings those of all shards
    /// there. All ranks call it after the same step. Does nothing where the reduction keeps none.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub fn gather_residuals(&mut self) -> Result<(), Error> {
        if self.config.reduction.keeps_residuals {
            self.apply_outstanding()?;
            self.gathered = Some((self.steps, self.step.gather_residuals()?));
        }
        Ok(())
    }

    /// What the reduction keeps for each shard of the job, for a checkpoint; nothing if it keeps nothing.
    pub(crate) fn all_residuals(&mut self) -> Result<Vec<Vec<f32>>, Error> {
        self.apply_outstanding()?;
        match &self.gathered {
            Some((steps, all)) if *steps == self.steps && all.len() == self.shards => Ok(all.clone()),
            _ if self.step.shards().len() == self.shards || !self.config.reduction.keeps_residuals => {
                Ok(self.step.residuals())
            }
            _ => Err(Error::ResidualsElsewhere { reduction: self.config.reduction.name }),
        }
    }

    /// Goes on with what the reduction has kept for each of this rank's shards.
    pub(crate) fn set_residuals(&mut self, flat: &[Vec<f32>]) {
        self.step.set_residuals(flat);
    }

    /// How many shards a step has, if the reduction keeps something for each of them.
    pub(crate) fn shards_with_residuals(&self) -> usize {
        if self.config.reduction.keeps_residuals { self.shards } else { 0 }
    }

    /// How often the next step is expected to use each tensor.
    pub(crate) fn expected_uses(&self) -> &[u32] {
        self.step.expected_uses()
    }

    /// As another run expects it that went on from here.
    pub(crate) fn expect_uses(&mut self, uses: Vec<u32>) {
        self.step.expect_uses(uses);
    }

    /// Forgets all that a checkpoint has to bring back: what is left is what a process has that has just
    /// joined these ranks. All ranks call it after the same step.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or memory cannot be had.
    pub(crate) fn begin_anew(&mut self) -> Result<(), Error> {
        self.apply_outstanding()?;
        self.values.fill(0.0);
        self.optimizer.init(&self.layout);
        self.transforms.init(&self.layout);
        self.gathered = None;
        self.undo = self.undo.is_some().then(|| Undo::new(&self.layout));
        self.begin_steps(self.group.clone(), vec![1; self.layout.spans().len()])?;
        self.resume(0);
        Ok(())
    }

    pub(crate) fn resume(&mut self, steps: u64) {
        (self.steps, self.last) = (steps, None);
    }
}
