//! Updates: a reduced bucket changes the values.
//!
//! They run on the thread that reads values, in `Replica::step` or in the next forward pass.

use std::time::Instant;

use super::core::Core;
use super::offload;
use crate::warning::Warning;
use kolo_optim::{Scope, SpanId};
use kolo_reduction::Error;
use kolo_step::LastStep;
use kolo_values::freed_memory::give_back;

impl Core {
    /// Applies all updates that are pending.
    pub fn apply_outstanding(&mut self) -> Result<(), Error> {
        if let Some(error) = self.progress.failure.take() {
            return Err(error);
        }
        self.weights.overflow.refuse()?;
        if let Some(error) = self.weights.divided.as_ref().and_then(|divided| divided.take_failure()) {
            return Err(error);
        }
        self.check_store()?;
        if self.handover.lacks_values {
            return Err(Error::Lost);
        }
        if self.step.outstanding() > 0 {
            self.collect_what_cannot_be_undone()?;
            self.step.order().into_iter().try_for_each(|bucket| self.apply(bucket))?;
        }
        Ok(())
    }

    /// Applies the pending updates of a tensor.
    pub(crate) fn apply_tensor(&mut self, id: SpanId) -> Result<(), Error> {
        if self.step.outstanding() > 0 && !self.traits().is_delayed {
            self.collect_what_cannot_be_undone()?;
        }
        for bucket in self.step.buckets_of(id) {
            // The last bucket of a step may end the step and apply other buckets.
            if self.step.outstanding() > 0 {
                self.apply(bucket)?;
            }
        }
        Ok(())
    }

    /// Waits for all buckets in an elastic job without a copy of the values, where a step that fails halfway
    /// would be repeated with some of its updates already applied. Once all buckets are back, nothing can
    /// fail halfway.
    fn collect_what_cannot_be_undone(&mut self) -> Result<(), Error> {
        if self.config.elastic && self.weights.undo.is_none() && self.weights.share.is_none() {
            let order = self.step.order();
            order.into_iter().try_for_each(|bucket| self.step.wait(bucket))?;
        }
        Ok(())
    }

    /// Returns true if reductions overlap with the next forward pass. Rolling a step back then takes a copy
    /// of the values, whose cost pays off where the network is slow; with divided state it takes none.
    pub(crate) fn overlaps(&self) -> bool {
        if self.divides_values() || self.shares_memory() {
            return false;
        }
        let slow = self.ranks.group.reach() == kolo_comm::Distance::Network;
        // Where updates are one step late, the job never rolls back one step, but goes back to the last
        // copy.
        let is_free = !self.config.elastic || self.traits().is_delayed || self.weights.share.is_some();
        self.config.forward_overlap && (slow || is_free)
    }

    /// Applies a bucket, if that is pending.
    pub(crate) fn apply(&mut self, bucket: usize) -> Result<(), Error> {
        if !self.step.is_due(bucket) {
            return Ok(());
        }
        if self.shares_memory() {
            // An update there ends with its step, or is completed by those who meet next.
            return Err(Error::Lost);
        }
        if self.weights.share.is_some() {
            return self.apply_gathered(bucket);
        }
        self.step.wait(bucket)?;
        self.step.applied(bucket);
        if self.ranks.server {
            return self.step.ended().map_or(Ok(()), |done| self.complete(done));
        }
        let start = Instant::now();
        self.apply_bucket(bucket)?;
        self.step.updated(bucket, start);
        self.step.ended().map_or(Ok(()), |done| self.complete(done))
    }

    /// Steps the blocks that this rank owns, and starts to exchange the new values with the other ranks,
    /// bucket by bucket. All ranks call it in the same place among their collectives.
    pub(crate) fn step_own_blocks(&mut self) -> Result<(), Error> {
        for bucket in self.step.order() {
            self.step.wait(bucket)?;
            let start = Instant::now();
            self.apply_bucket(bucket)?;
            self.step.updated(bucket, start);
            self.step.gather(bucket, &mut self.weights.values)?;
        }
        Ok(())
    }

    /// Applies a bucket whose new values come from their owners.
    fn apply_gathered(&mut self, bucket: usize) -> Result<(), Error> {
        // They still serve others if the step failed before any of its updates.
        self.weights.withdraw();
        let content = self.step.gathered(bucket, &mut self.weights.values)?;
        content.slices.iter().for_each(|slice| self.weights.look(slice));
        self.step.applied(bucket);
        self.step.updated(bucket, Instant::now());
        self.step.ended().map_or(Ok(()), |done| self.complete(done))
    }

    /// Returns true if only the optimizer reads a reduced gradient, and each element once. Where updates are
    /// one step late, adding a sum when it is read would keep the gradients of two steps. Where blocks have
    /// owners, their sums are added for the owners.
    fn reads_once(&self) -> bool {
        self.weights.optimizer.scope() == Scope::Element
            && self.transforms.is_empty()
            && !self.observers.noise.is_on()
            && !self.scaler.is_on()
            && !self.traits().is_delayed
            && self.weights.share.is_none()
            && !self.shares_memory()
    }

    /// Completes a step, all of whose updates are applied.
    pub(crate) fn complete(&mut self, done: LastStep) -> Result<(), Error> {
        if let Some(undo) = &mut self.weights.undo {
            undo.commit();
        }
        // A server's values are not updated: NaN keeps anybody from using them as the model's.
        if self.ranks.server && !self.weights.values.first().is_some_and(|value| value.is_nan()) {
            self.weights.values.fill(f32::NAN);
        }
        if !self.ranks.server {
            self.weights.name_overflow(done.step)?;
        }
        self.settle(done);
        if self.step.prepare_next(self.reads_once())? {
            // What the start and the old buckets have left; the next pass takes what a step needs.
            give_back();
        }
        self.handover.ending = None;
        Ok(())
    }

    /// Records a complete step.
    pub(super) fn settle(&mut self, done: LastStep) {
        if let Some(noise_scale) = done.noise_scale {
            self.observers.noise.known = noise_scale;
        }
        self.transforms.end_step();
        self.step.end_uses();
        self.progress.last = Some(done);
    }

    /// Returns an error if the optimizer's state, which is in a file, is lost. Whoever has visited the state
    /// calls it before the values go elsewhere.
    ///
    /// # Errors
    ///
    /// [`Error::Offload`].
    pub fn check_store(&mut self) -> Result<(), Error> {
        let optimizer = &mut *self.weights.optimizer;
        offload::check(optimizer, self.ranks.group.rank())?;
        if let Some(words) = optimizer.store().and_then(|store| store.take_warning()) {
            self.notices.warnings.add(Warning::StateInMemory(words));
        }
        Ok(())
    }

    /// Applies a bucket that is back, as far as this rank steps it.
    pub(super) fn apply_bucket(&mut self, bucket: usize) -> Result<(), Error> {
        self.weights.apply_bucket(bucket, &mut self.step)?;
        self.check_store()
    }
}
