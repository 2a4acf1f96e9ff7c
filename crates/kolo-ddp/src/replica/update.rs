//! The way back of a gradient: how a bucket that has been reduced changes the values.
//!
//! It runs on the thread that asks for values, in [`Replica::step`](super::Replica::step) or in the next
//! forward pass.

use std::time::Instant;

use super::core::Core;
use crate::error::Error;
use crate::last_step::LastStep;
use kolo_optim::{Scope, SpanId};

impl Core {
    /// Makes all updates that are still to be made.
    pub(crate) fn apply_outstanding(&mut self) -> Result<(), Error> {
        if let Some(error) = self.progress.failure.take() {
            return Err(error);
        }
        self.weights.overflow.refuse()?;
        if self.step.outstanding() > 0 {
            self.collect_what_cannot_be_undone()?;
            self.step.order().into_iter().try_for_each(|bucket| self.apply(bucket))?;
        }
        Ok(())
    }

    /// Makes the updates of a tensor that are still to be made.
    pub(crate) fn apply_tensor(&mut self, id: SpanId) -> Result<(), Error> {
        if self.step.outstanding() > 0 && !self.traits().is_delayed {
            self.collect_what_cannot_be_undone()?;
        }
        for bucket in self.step.buckets_of(id) {
            // The last bucket of a step may end it with other buckets.
            if self.step.outstanding() > 0 {
                self.apply(bucket)?;
            }
        }
        Ok(())
    }

    /// Waits for all buckets where a step that fails halfway would be done again with updates in it: in an
    /// elastic job without a copy of the values. Once all is back nothing can fail halfway.
    fn collect_what_cannot_be_undone(&mut self) -> Result<(), Error> {
        if self.config.elastic && self.weights.undo.is_none() {
            let order = self.step.order();
            order.into_iter().try_for_each(|bucket| self.step.wait(bucket))?;
        }
        Ok(())
    }

    /// Whether reductions reach into the next forward pass. To take a step back there costs a copy of the
    /// values, which pays where the wire is slow.
    pub(crate) fn overlaps(&self) -> bool {
        let slow = self.ranks.group.reach() == kolo_comm::Distance::Network;
        // Where updates are one step late no step is taken back, but all since the last copy.
        self.config.forward_overlap && (slow || !self.config.elastic || self.traits().is_delayed)
    }

    /// Updates the values of a bucket, if that is still to be done.
    pub(crate) fn apply(&mut self, bucket: usize) -> Result<(), Error> {
        if !self.step.is_due(bucket) {
            return Ok(());
        }
        self.step.wait(bucket)?;
        self.step.applied(bucket);
        if self.ranks.server {
            return self.step.ended().map_or(Ok(()), |done| self.complete(done));
        }
        let start = Instant::now();
        self.weights.apply_bucket(bucket, &mut self.step)?;
        self.step.updated(bucket, start);
        self.step.ended().map_or(Ok(()), |done| self.complete(done))
    }

    /// Whether nothing but the optimizer looks at a reduced gradient, and at each element once. Where updates
    /// are one step late a sum that is added when it is read would keep the gradients of two steps.
    fn reads_once(&self) -> bool {
        self.weights.optimizer.scope() == Scope::Element
            && self.transforms.is_empty()
            && !self.observers.noise.is_on()
            && !self.scaler.is_on()
            && !self.traits().is_delayed
    }

    /// All updates of a step are in.
    pub(crate) fn complete(&mut self, done: LastStep) -> Result<(), Error> {
        if let Some(undo) = &mut self.weights.undo {
            undo.commit();
        }
        if let Some(noise_scale) = done.noise_scale {
            self.observers.noise.known = noise_scale;
        }
        // Nobody must take for the model's what no step has changed.
        if self.ranks.server && !self.weights.values.first().is_some_and(|value| value.is_nan()) {
            self.weights.values.fill(f32::NAN);
        }
        if !self.ranks.server {
            self.weights.name_overflow(done.step)?;
        }
        self.transforms.end_step();
        self.progress.last = Some(done);
        self.step.prepare_next(self.reads_once())
    }
}
