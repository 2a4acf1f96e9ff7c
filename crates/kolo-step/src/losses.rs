//! The loss of a step as a pair (sum, count), summed in the same tree as the gradients.
//!
//! It is sent before the first bucket, so the divisor is known when gradients are reduced, and a short or
//! empty shard has its proper weight.

use std::time::Duration;

use kolo_comm::backend::WaitMode;
use kolo_comm::{Buffer, Collective, Group};

use crate::exchange::Exchange;
use crate::wait_time::timed;
use kolo_reduction::Error;
use kolo_reduction::reduction::SampleCount;
use kolo_sampler::Assignment;

/// The losses of this rank's shards, summed in the same tree as the gradients.
#[derive(Default)]
pub(crate) struct ShardLosses {
    /// Loss and count of each shard so far.
    values: Vec<[f64; 2]>,
    pending: Option<Exchange<f64>>,
    /// Samples of all ranks, as soon as they are known.
    samples: SampleCount,
}

impl ShardLosses {
    /// Takes the loss of the next shard, summed over `count` samples.
    pub(crate) fn push(&mut self, loss: f64, count: f64) {
        self.values.push([loss, count]);
    }

    /// Losses of this rank's shards that are not finite, each with the index of its shard.
    pub(crate) fn not_finite(&self) -> Vec<(usize, f64)> {
        let losses = self.values.iter().map(|[loss, _]| *loss).enumerate();
        losses.filter(|(_, loss)| !loss.is_finite()).collect()
    }

    pub(crate) fn reset(&mut self) {
        self.values.clear();
        self.samples = SampleCount::default();
    }

    /// Returns true if the sum over the shards of all ranks has been started and not been waited for.
    pub(crate) fn are_started(&self) -> bool {
        self.pending.is_some()
    }

    /// The samples of the current step.
    pub(crate) fn samples(&self) -> SampleCount {
        self.samples.clone()
    }

    /// Sets the samples of a step of this rank alone, whose shards are complete.
    pub(crate) fn are_all(&self) {
        self.samples.set(self.sum()[1]);
    }

    /// Starts the sum over the shards of all ranks.
    pub(crate) fn start(
        &mut self,
        group: &Group,
        mode: WaitMode,
        assignment: &Assignment,
    ) -> Result<(), Error> {
        let Assignment { for_all: contributions, shards, .. } = assignment;
        let nodes = contributions.of(group.rank());
        let mut buffer: Buffer<f64> = group.alloc(2 * contributions.parts(group.rank()))?;
        for (part, node) in nodes.iter().enumerate() {
            let own = node.first - shards.start;
            let sum = sum_pairs(&self.values[own..own + node.count]);
            buffer[2 * part..2 * part + 2].copy_from_slice(&sum);
        }
        let sum = Collective::tree_sum(contributions.clone(), 2);
        self.pending = Some(match mode {
            WaitMode::Blocking => Exchange::new(group, mode, sum, buffer),
            // Reductions that are started after it need the samples before this thread waits for them.
            WaitMode::Background => {
                let samples = self.samples();
                Exchange::UnderWay(group.start_stages(move |stages| {
                    let sum = stages.run(&sum, buffer)?;
                    samples.set(sum[1]);
                    Ok(sum)
                }))
            }
        });
        Ok(())
    }

    /// Waits for the sum of losses and counts; if nothing has been started, that of this rank's own shards.
    pub(crate) fn finish(&mut self, group: &Group, exposed: &mut Duration) -> Result<[f64; 2], Error> {
        match self.pending.take() {
            Some(pending) => {
                let sum = timed(exposed, "the loss", || pending.wait(group))?;
                Ok([sum[0], sum[1]])
            }
            None => Ok(self.sum()),
        }
    }

    /// The sum over this rank's shards.
    fn sum(&self) -> [f64; 2] {
        self.values.iter().fold([0.0; 2], |sum, value| [sum[0] + value[0], sum[1] + value[1]])
    }
}

/// The sum over a whole node of the tree; a power of two of values.
fn sum_pairs(values: &[[f64; 2]]) -> [f64; 2] {
    match values {
        [] => [0.0; 2],
        [value] => *value,
        _ => {
            let (left, right) = values.split_at(values.len() / 2);
            let (left, right) = (sum_pairs(left), sum_pairs(right));
            [left[0] + right[0], left[1] + right[1]]
        }
    }
}
