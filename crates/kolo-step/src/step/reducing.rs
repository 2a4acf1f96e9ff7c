//! `Reducing`: all passes of this rank are over. The remaining buckets are launched, and the ranks agree on
//! the step.

use kolo_comm::backend::WaitMode;

use super::agreement::Seen;
use super::finiteness::Magnitude;
use super::launch_order::LaunchSlot;
use super::observer_messages::{ObserverMessage, Received};
use super::unscaling::StepNumber;
use super::{Phase, Step};
use crate::wait_time::timed;
use kolo_optim::Span;
use kolo_reduction::{Error, ShardLoss};

/// Result of the ranks' agreement.
#[derive(Debug)]
pub struct Totals {
    /// Sum of the loss over all samples.
    pub loss: f64,
    /// Number of samples, or of the items that the loss counts.
    pub count: f64,
    /// Buckets whose reduction had been started before the last backward pass was over.
    pub started_early: usize,
    /// For each span: true if no shard of any rank has used it.
    pub unused: Vec<bool>,
    /// True if the loss or a gradient has overflowed before the reduction, in a step that permits it.
    pub overflowed: bool,
    /// True if a contribution is so large that the reduction's results may not be finite.
    pub is_large: bool,
    /// Messages of the observers.
    pub received: Received,
}

impl Step {
    /// `Collecting` → `Reducing`: all backward passes of this rank are over. Starts the remaining
    /// collectives; if sums of buckets are deferred, waits for the other ranks. Only [`Step::agree`] and
    /// [`Step::prepare_next`] start collectives of this step later. So each rank may request buckets in any
    /// order.
    ///
    /// # Errors
    ///
    /// A backward pass is missing or still running, out of memory, or a step has failed before; if sums of
    /// buckets are deferred, a collective failed (naming the rank).
    pub fn start_rest(&mut self, step: StepNumber, message: &ObserverMessage) -> Result<(), Error> {
        let updates = step.updates;
        let (done, due) = (self.passes_done("step")?, self.shards().len());
        if done != due {
            return Err(Error::ShardsMissing { due, done });
        }
        self.phase = Phase::Reducing;
        self.profile.pass_over();
        if due == 0 {
            self.begin(step);
        }
        let mode = if self.defers() { WaitMode::Blocking } else { WaitMode::Background };
        if !self.losses.are_started() {
            self.start_losses(mode)?;
        }
        self.launches.early = self.buckets.states.iter().filter(|state| state.is_launched()).count();
        if self.defers() {
            let defer = || self.buckets.defer(&self.ranks.group, &self.ranks.assignment);
            timed(&mut self.times.exposed, "the others' buckets", defer)?;
        }
        while let Some(slot) = self.launches.next() {
            match slot {
                LaunchSlot::Bucket(bucket) if self.buckets.states[bucket].is_launched() => {
                    self.launches.advance()
                }
                LaunchSlot::Bucket(bucket) => self.launch(bucket, updates),
                LaunchSlot::Agreement => {
                    if self.options.synchronize {
                        let places = self
                            .by_shard()
                            .into_iter()
                            .chain(self.by_rank(message.seconds))
                            .collect::<Vec<_>>();
                        self.agreement.start(&self.ranks.group, mode, self.seen(), message, &places)?;
                    }
                    self.launches.advance();
                }
            }
        }
        Ok(())
    }

    /// Waits until the ranks agree on the step. Belongs to `Reducing`.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank); no rank had a sample; the loss or a gradient is not finite in
    /// a step that may not overflow; the change of a statistic is not finite; or no parameter has a
    /// gradient.
    pub fn agree(&mut self, step: StepNumber) -> Result<Totals, Error> {
        let StepNumber { number, may_overflow, .. } = step;
        let [loss, count] = self.losses.finish(&self.ranks.group, &mut self.times.exposed)?;
        let is_empty = count <= 0.0;
        if is_empty && !self.options.may_be_empty {
            return Err(Error::NoSamples { step: number });
        }
        let agreed = self.agreement.finish(&self.ranks.group, &mut self.times.exposed)?;
        let (seen, mut received) = agreed.unwrap_or_else(|| (self.seen(), Received::default()));
        // The shards' numbers come first, if there are any.
        let shards = if self.incoming.squares.is_some() { self.shares().iter().sum() } else { 0 };
        received.seconds = received.by_shard.split_off(shards.min(received.by_shard.len()));
        if !loss.is_finite() && !may_overflow {
            return Err(self.not_finite(number, loss)?);
        }
        let overflowed = !loss.is_finite() || seen.gradient == Magnitude::NotFinite;
        // A step that is skipped changes no statistic either.
        if (overflowed && !may_overflow) || (!overflowed && seen.statistic == Magnitude::NotFinite) {
            return Err(self.contribution_not_finite(number)?);
        }
        if seen.unexpected {
            self.add_late()?;
        }
        let unused = self.uses.unused();
        let mut spans = self.layout.spans().iter().zip(&unused);
        let is_trained = |span: &Span| span.spec.kind.is_trained();
        let is_used = spans.any(|(span, unused)| is_trained(span) && !unused);
        if !is_used && !is_empty && self.layout.spans().iter().any(is_trained) {
            return Err(Error::NoGradient { step: number });
        }
        let started_early = self.launches.early;
        let is_large = !overflowed && seen.gradient.max(seen.statistic) > Magnitude::Ordinary;
        Ok(Totals { loss, count, started_early, unused, overflowed, is_large, received })
    }

    /// Observations of this rank in its passes.
    fn seen(&self) -> Seen {
        let unexpected = !self.shards().is_empty() && self.uses.is_unexpected();
        let (gradient, statistic) = self.incoming.watch.seen();
        Seen { unexpected, gradient, statistic }
    }

    /// Returns the error of a step whose loss, summed over all shards, is not finite; it names the shards.
    fn not_finite(&self, step: u64, loss: f64) -> Result<Error, Error> {
        let (rank, own) = (self.ranks.group.rank(), self.losses.not_finite());
        let named = |(shard, loss)| ShardLoss { rank, shard: self.shards().start + shard, loss };
        let mut shards: Vec<ShardLoss> = own.into_iter().map(named).collect();
        if self.options.synchronize {
            shards = self.ranks.group.all_gather_value::<_, Vec<ShardLoss>>(&shards)?.concat();
        }
        Ok(Error::LossNotFinite { step, loss, shards })
    }

    /// Returns a place for each rank, in which this rank's is filled; empty in a job that is not tuned.
    fn by_rank(&self, seconds: Option<f64>) -> Vec<f64> {
        let Some(seconds) = seconds else { return Vec::new() };
        let mut all = vec![0.0; self.ranks.group.world_size()];
        all[self.ranks.group.rank().0] = seconds;
        all
    }

    /// Returns a place for each of the job's shards, in which this rank's are filled; empty where they are
    /// not measured.
    fn by_shard(&self) -> Vec<f64> {
        let Some(squares) = &self.incoming.squares else { return Vec::new() };
        let mut all = vec![0.0; self.shares().iter().sum()];
        all[self.shards()].copy_from_slice(squares.done());
        all
    }
}
