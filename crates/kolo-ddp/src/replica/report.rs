//! What a replica tells of a step.

use std::time::Duration;

use super::core::Core;
use crate::last_step::LastStep;
use crate::noise_scale::NoiseScale;
use crate::staleness::Staleness;
use crate::step::BucketTiming;
use crate::straggler::{Straggler, Times};
use crate::tune::Tuning;
use crate::warning::Warning;

/// What became of a worker after a step that changed the members of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// All is as before.
    #[default]
    None,
    /// It goes on with other ranks: its rank, and its shards, may be others.
    Regrouped,
    /// It has left, as it was asked to ([`Replica::leave`](crate::Replica::leave)). Its values are those of
    /// the whole step.
    Left,
    /// It has left, and all others with it: the job is over, and one of them, say rank 0, should save what it
    /// has come to. The group can still be used for that.
    AllLeft,
}

/// What a step gave.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// Mean loss over the global batch, without its scale. Finite, unless the step was skipped. Between two
    /// outer steps of islands only over this rank's islands, and where servers hold the weights over its
    /// shards; no number without one. Where updates are one step late this and what follows up to
    /// `summed_bytes` are the last `known` step's; without one the loss is no number.
    pub loss: f64,
    /// What the mean is over: samples of the global batch.
    pub count: f64,
    /// The steps whose loss over the global batch has become known with this one, in order: this one; where
    /// islands synchronise rarely, all since the last outer step, or none between two of them; where servers
    /// hold the weights, those that the slowest worker has come to, and with the last step of a round all;
    /// where updates are one step late, the one before this, and this one where its update is made, too.
    pub known: Vec<LastStep>,
    /// Bytes of what has been summed over all shards, or in an outer step over all islands: four for each
    /// element, however they travel; 0 between two outer steps. Where servers hold the weights, of what this
    /// worker has pushed.
    pub summed_bytes: u64,
    /// Global norm of the gradient before its transforms; measured only where one of them, such as clipping,
    /// needs it, and all shards synchronise. Of the same step as the loss, as are the next three.
    pub gradient_norm: Option<f64>,
    /// The noise scale of the gradient as the steps so far have it; only with
    /// [`Config::noise_scale`](crate::Config::noise_scale).
    pub noise_scale: Option<NoiseScale>,
    /// Whether the step changed nothing, because its loss or its gradient overflowed
    /// ([`Config::loss_scaling`](crate::Config)); on all ranks alike. Values, statistics and the optimizer's
    /// state stay as they were, and the optimizer does not count the step; it counts for everything else,
    /// such as the learning rate and the samples. Of islands that synchronise rarely all have to have skipped
    /// it, between two outer steps all of this rank's.
    pub skipped: bool,
    /// What the losses of the step were multiplied by, where they are scaled, and all shards synchronise.
    pub loss_scale: Option<f32>,
    /// Each bucket's last reduction that is over: of this step, or of the one before where it is still on the
    /// wire.
    pub buckets: Vec<BucketTiming>,
    /// Time in which this rank's thread waited for communication since the last report.
    pub exposed: Duration,
    /// Time in which this rank's thread ran backward passes since the last report.
    pub backward: Duration,
    /// The same, in which it updated values. Where updates are made in the next forward pass
    /// ([`Config::forward_overlap`](crate::Config)) they are in the next report.
    pub optimizer: Duration,
    /// Buckets whose reduction had been started before the last backward pass was over; of the step whose
    /// loss this is.
    pub started_early: usize,
    /// What has become of this worker, in an elastic job.
    pub change: Change,
    /// A rank that has turned out to hold the others up; on all ranks alike, once a finding.
    pub straggler: Option<Straggler>,
    /// What each rank does with its time, on its own clock, as the ranks have told one another in this step;
    /// on all ranks alike. Empty in steps without such a comparison.
    pub times: Vec<Times>,
    /// Whether ranks have other shards from the next step on
    /// ([`Policy::Rebalance`](crate::straggler::Policy::Rebalance)): ask
    /// [`Replica::shards`](crate::Replica::shards) again.
    pub shards_changed: bool,
    /// How stale the weights were that all workers have pulled, in the report of the last step of a round;
    /// only where servers hold the weights.
    pub staleness: Option<Staleness>,
    /// What tuning has come to with this step ([`Config::tune`](crate::Config::tune)); on all ranks alike.
    pub tuning: Option<Tuning>,
    /// What the user must know, on the rank that should speak of it; each once, also those from between the
    /// last step and this one.
    pub warnings: Vec<Warning>,
}

impl StepReport {
    /// Seconds in which at least one bucket was being reduced.
    pub fn comm_seconds(&self) -> f64 {
        self.buckets.iter().fold(0.0, |sum, bucket| sum + bucket.seconds)
    }
}

impl Core {
    /// The steps that became known with the last whole one ([`Replica::last_steps`](crate::Replica::last_steps)).
    pub(crate) fn last_steps(&self) -> Vec<LastStep> {
        let number = |last: &LastStep| last.step;
        match self.progress.round.last().map(number) == self.progress.last.as_ref().map(number) {
            true => self.progress.round.clone(),
            false => self.progress.last.into_iter().collect(),
        }
    }

    /// As another rank, or a copy, has them.
    pub(crate) fn set_last_steps(&mut self, steps: Vec<LastStep>) {
        (self.progress.last, self.progress.round) = (steps.last().copied(), steps);
    }
}
