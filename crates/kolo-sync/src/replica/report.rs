//! The report of a step.

use std::time::Duration;

use super::core::Core;
use crate::staleness::Staleness;
use crate::warning::Warning;
use kolo_step::{BucketTiming, LastStep, NoiseScale, Tuning};
use kolo_straggler::{Straggler, Times};

/// Effect on a worker of a step that changed the members of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// Nothing has changed.
    #[default]
    None,
    /// The worker continues with other ranks: its rank and its shards may have changed.
    Regrouped,
    /// The worker has left, as requested (`Replica::leave`). Its values are those after the whole step.
    Left,
    /// All workers have left: the job is over, and one of them, say rank 0, should save its state; where
    /// state is divided ([`Config::sharding`](crate::Config::sharding)), all together. The group can still be
    /// used for that.
    AllLeft,
}

/// Results of a step.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// Mean loss over the global batch, without its loss scale. Finite, unless the step was skipped. Between
    /// two outer steps of islands, only over this rank's islands; where servers hold the weights, over this
    /// worker's shards; NaN if there are none. Where updates are one step late, this field and `count`
    /// belong to the last step of `known`, and the loss is NaN if `known` is empty.
    pub loss: f64,
    /// Samples that the mean is over: those of the global batch.
    pub count: f64,
    /// Steps whose loss over the global batch has become known with this one, in order. Usually this one.
    /// Where islands synchronize rarely, all steps since the last outer step, or none between two of them.
    /// Where servers hold the weights, the steps that the slowest worker has reached, and with the last step
    /// of a round all. Where updates are one step late, the step before this one, and also this one if its
    /// update is applied.
    pub known: Vec<LastStep>,
    /// Transfer of the gradient.
    pub traffic: GradientTraffic,
    /// Use of time.
    pub times: StepTimes,
    /// Global norm of the gradient before its transforms. Measured only if one of them, such as clipping,
    /// needs it and all shards synchronize. It belongs to the same step as the loss, as do the next three
    /// fields.
    pub gradient_norm: Option<f64>,
    /// Noise scale of the gradient after the steps so far; only with
    /// [`Config::noise_scale`](crate::Config::noise_scale).
    pub noise_scale: Option<NoiseScale>,
    /// True if the step changed nothing because its loss or its gradient overflowed
    /// ([`Config::loss_scaling`](crate::Config)); the same on all ranks. Values, statistics and the
    /// optimizer's state stay as they were, and the optimizer does not count the step. Everything else
    /// counts it, such as the learning rate and the samples. With islands that synchronize rarely, true if
    /// all of them skipped the step; between two outer steps, if all of this rank's did.
    pub skipped: bool,
    /// Factor that the losses of the step were multiplied by, if losses are scaled and all shards
    /// synchronize.
    pub loss_scale: Option<f32>,
    /// Change of this worker's membership, in an elastic job.
    pub change: Change,
    /// A rank that was found to hold up the others; the same on all ranks, and once per finding.
    pub straggler: Option<Straggler>,
    /// True if shards move between ranks from the next step on
    /// ([`Policy::Rebalance`](kolo_straggler::Policy::Rebalance)): call `Replica::shards` again.
    pub shards_changed: bool,
    /// Staleness of the weights that all workers have pulled, in the report of the last step of a round;
    /// only where servers hold the weights.
    pub staleness: Option<Staleness>,
    /// Result that tuning reached with this step ([`Config::tune`](crate::Config::tune)); the same on all
    /// ranks.
    pub tuning: Option<Tuning>,
    /// Warnings for the user, on the rank that should print them. Each appears once, including those from
    /// between the last step and this one.
    pub warnings: Vec<Warning>,
}

/// Transfer of a step's gradient.
#[derive(Clone, Debug, Default)]
pub struct GradientTraffic {
    /// Last complete reduction of each bucket: of this step, or of the one before if this one's is still on
    /// the wire.
    pub buckets: Vec<BucketTiming>,
    /// Bytes that have been summed over all shards, or in an outer step over all islands: four for each
    /// element, however it travels; 0 between two outer steps. Where servers hold the weights, the bytes
    /// that this worker has pushed.
    pub summed_bytes: u64,
    /// Number of buckets whose reduction started before the last backward pass ended; of the step whose loss
    /// the report has.
    pub started_early: usize,
    /// Most bytes of gradient buffers that this rank has had at once since the last report, with those in
    /// which new values travel; only with [`Sharding::Gradients`](crate::Sharding::Gradients).
    pub peak_bytes: Option<u64>,
}

/// Use of time: by this rank since the last report, and by all ranks where they have exchanged it.
#[derive(Clone, Debug, Default)]
pub struct StepTimes {
    /// Time in which at least one bucket was being reduced. Buckets that were on their way together count
    /// once.
    pub communicating: Duration,
    /// Time that this rank's thread waited for communication.
    pub exposed: Duration,
    /// Time that this rank's thread spent in backward passes.
    pub backward: Duration,
    /// Time that it spent updating values. Updates that are applied in the next forward pass
    /// ([`Config::forward_overlap`](crate::Config)) are in the next report.
    pub optimizer: Duration,
    /// Use of time by each rank, on its own clock, as the ranks exchanged it in this step; the same on all
    /// ranks. Empty in steps without such a comparison.
    pub of_ranks: Vec<Times>,
}

impl Core {
    /// Steps that became known with the last whole one (`Replica::last_steps`).
    pub fn last_steps(&self) -> Vec<LastStep> {
        let number = |last: &LastStep| last.step;
        match self.progress.round.last().map(number) == self.progress.last.as_ref().map(number) {
            true => self.progress.round.clone(),
            false => self.progress.last.into_iter().collect(),
        }
    }

    /// Takes over the last steps of another rank or of a copy.
    pub fn set_last_steps(&mut self, steps: Vec<LastStep>) {
        (self.progress.last, self.progress.round) = (steps.last().copied(), steps);
    }
}
