//! `Applying`: the reduced buckets. A bucket is waited for when its values are needed, and the last one that
//! is applied ends the step.

use std::time::{Duration, Instant};

use super::bucket_state::Stage;
use super::profile::Lesson;
use super::{Phase, Step};
use crate::last_step::LastStep;
use kolo_reduction::reduction::Reduction;
use kolo_reduction::{Bucket, Error, Slice};

impl Step {
    /// `Reducing` → `Applying`: every bucket's update is due, of a step that ends as `ends`.
    pub fn begin_applying(&mut self, ends: LastStep) {
        (self.times.ended, self.times.away) = (Instant::now(), Duration::ZERO);
        self.phase = Phase::Applying { left: self.buckets.states.len(), ends };
    }

    /// Waits for a bucket; returns it and its reduced gradient. Belongs to `Reducing`, for code that reads
    /// the whole gradient first, and to `Applying`. Fails if a collective fails (naming the rank).
    pub fn collect(&mut self, bucket: usize) -> Result<(&Bucket, &mut [f32]), Error> {
        self.wait(bucket)?;
        Ok(self.buckets.states[bucket].result())
    }

    /// Waits for a bucket; returns the slices of it that this rank looks at for all ranks, and their
    /// gradient. Where gradients are divided these are its own parts, each of which one rank looks at; else
    /// all slices. Fails as [`Step::collect`] does.
    pub fn collect_seen(&mut self, bucket: usize) -> Result<(&[Slice], &[f32]), Error> {
        self.wait(bucket)?;
        let (slices, gradient) = self.buckets.states[bucket].seen();
        Ok((slices, &*gradient))
    }

    /// Waits for a bucket, for a caller that reads each element of the reduced gradient once
    /// ([`Reduction::read_once`]).
    pub(super) fn collect_once(&mut self, bucket: usize) -> Result<(&Bucket, &mut dyn Reduction), Error> {
        self.wait(bucket)?;
        Ok(self.buckets.states[bucket].reduced())
    }

    /// Waits for a bucket. Fails as [`Step::collect`] does.
    pub fn wait(&mut self, bucket: usize) -> Result<(), Error> {
        let before = self.times.exposed;
        self.buckets.states[bucket].wait(&mut self.times)?;
        self.times.away += self.times.exposed.saturating_sub(before);
        Ok(())
    }

    /// Returns true if a bucket's update is still to be made.
    pub fn is_due(&self, bucket: usize) -> bool {
        matches!(self.phase, Phase::Applying { .. }) && self.buckets.states[bucket].stage != Stage::Current
    }

    /// Number of updates that are still to be made.
    pub fn outstanding(&self) -> usize {
        match self.phase {
            Phase::Applying { left, .. } => left,
            _ => 0,
        }
    }

    /// Marks a bucket as applied: it has changed the values.
    pub fn applied(&mut self, bucket: usize) {
        let stage = &mut self.buckets.states[bucket].stage;
        if let Phase::Applying { left, .. } = &mut self.phase
            && std::mem::replace(stage, Stage::Current) != Stage::Current
        {
            *left -= 1;
        }
    }

    /// Records the time from `start` until now, in which a bucket has changed the values.
    pub fn updated(&mut self, bucket: usize, start: Instant) {
        let end = Instant::now();
        let needed = (start - self.times.ended).saturating_sub(self.times.away);
        self.times.away += end - start;
        self.times.spent.optimizer += end - start;
        self.buckets.states[bucket].updated(start, end, needed.as_secs_f64());
    }

    /// Expects as many uses of each span in the next step as there were in this one, which is complete. Also
    /// part of [`Step::prepare_next`].
    pub fn end_uses(&mut self) {
        self.uses.end_step();
    }

    /// Ends the step without its updates; all of its buckets have been collected.
    pub fn skip_updates(&mut self) {
        (0..self.buckets.states.len()).for_each(|bucket| self.applied(bucket));
    }

    /// Returns how the step has ended, once all of its updates are made and [`Step::prepare_next`] is to be
    /// called.
    pub fn ended(&self) -> Option<LastStep> {
        match self.phase {
            Phase::Applying { left: 0, ends } => Some(ends),
            _ => None,
        }
    }

    /// `Applying` → `Idle`, when all updates are made. After the first step buckets are rebuilt in the order
    /// in which gradients became ready, and a few steps later they get their places in the order of
    /// launches. From then on, if `reads_once`, reductions may assume that their result is read once. Returns
    /// true if it has rebuilt them.
    ///
    /// # Errors
    ///
    /// A collective failed, or out of memory.
    pub fn prepare_next(&mut self, reads_once: bool) -> Result<bool, Error> {
        self.end_uses();
        let mut is_rebuilt = false;
        // Without the other ranks, no lesson would be the same on all of them.
        if self.options.synchronize && !self.profile.is_over() {
            match self.profile.end_step(&self.buckets.timings()) {
                Lesson::Wait => {}
                Lesson::Order(order) => {
                    self.rebuild(order)?;
                    is_rebuilt = true;
                }
                Lesson::Times(times) => self.reorder(times, reads_once)?,
            }
        }
        self.launches.restart();
        self.losses.reset();
        self.incoming.watch.reset();
        if let Some(squares) = &mut self.incoming.squares {
            squares.reset();
        }
        self.buckets.reset();
        self.phase = Phase::Idle;
        Ok(is_rebuilt)
    }

    /// Any phase → `GivenUp`, if updates are still to be made; returns true if they were.
    pub fn give_up(&mut self) -> bool {
        let gives_up = self.outstanding() > 0;
        if gives_up {
            self.phase = Phase::GivenUp;
        }
        gives_up
    }
}
