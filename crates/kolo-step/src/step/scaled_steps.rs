//! Beginning and skipping a step of a scaled loss, whose reduction may keep state
//! ([`unscaling`](super::unscaling)).

use super::Step;
use super::bucket_state::BucketState;
use super::unscaling::StepNumber;
use kolo_reduction::Error;

impl Step {
    /// Begins a step, before this rank's first pass or, on a rank without shards, in place of it.
    pub(super) fn begin(&mut self, step: StepNumber) {
        self.incoming.unscaling.scale = step.unscale;
        self.options.all_read = step.all_read;
        if step.unscale.is_some() {
            self.buckets.states.iter_mut().for_each(BucketState::save_state);
        }
    }

    /// Skips the step: waits for all buckets, and restores the state of their reductions from before it.
    /// Belongs to `Reducing`. Fails if a collective fails (naming the rank).
    pub fn take_back(&mut self) -> Result<(), Error> {
        for bucket in self.order() {
            self.wait(bucket)?;
            if self.incoming.unscaling.scale.is_some() {
                self.buckets.states[bucket].restore_state();
            }
        }
        Ok(())
    }
}
