//! 1-bit Adam: after a warm-up with exact sums the momentum is sent in one bit an element, in two stages.
//!
//! In the warm-up the optimizer sees the exact sum, and m = β₁m + (1−β₁)g/C is computed here as Adam
//! computes it, C samples. Afterwards Adam's second moment stays as it is, and each shard sends the signs of
//! (cᵢ/C)β₁m + (1−β₁)gᵢ/C + eᵢ, of cᵢ samples, and a scale for each block; eᵢ is the remainder. Every block
//! has an owner, which adds the messages of all shards in tree order, and its own error δ, and sends the
//! signs of that sum to all ranks: the new momentum. The optimizer sees the gradient that moves its first
//! moment there: C·(m − β₁·m_before)/(1−β₁). All kept state is a part of the mean
//! ([`feedback`](super::feedback)).
//!
//! The owner of a block is the rank that has a certain shard, so δ belongs to that shard, and moves with it.
//! On the wire two bits an element if there are as many shards as ranks.

use std::ops::Range;
use std::sync::Arc;

use kolo_comm::schedule::{Chunks, Travel, WireCost};
use kolo_comm::{Collective, Error as CommError, Stages};

use super::configured::configured;
use super::ef_sign::{decode_signs, encode_signs, sign_bytes};
use super::feedback::keep_more;
use super::parts::{Part, Parts};
use super::tree_sum::TreeSum;
use super::{Compressed, Compressor, DENSE_BELOW, Shard, Wire};
use crate::buckets::BLOCK;
use crate::error::Error;
use crate::reduction::interface::{Context, FinishedShard, Reducer, Reduction};
use crate::shard_sum::ShardSum;
use kolo_optim::Settings;
use kolo_optim::table::{Entry, Setting, Value};
use kolo_sampler::Assignment;
use serde::Deserialize;

pub(in crate::reduction) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "onebit-adam",
    about: "the momentum of Adam in 1 bit an element after a warm-up (Tang et al. 2021, algorithm 1)",
    settings: &[
        Setting::whole(
            "warmup_steps",
            1000,
            1..1 << 53,
            "Steps with exact sums; as the optimizer's freeze_after",
        ),
        Setting::number("beta1", 0.9, 0.0..1.0, "Decay of the first moment; as the optimizer's"),
        DENSE_BELOW,
    ],
    make: |settings| configured::<OnebitAdam>(&ENTRY, settings),
};

#[derive(Clone, Copy, Deserialize)]
struct OnebitAdam {
    warmup_steps: f64,
    beta1: f64,
    dense_below: f64,
}

impl Reducer for OnebitAdam {
    fn wire_cost(&self) -> Option<WireCost> {
        Some(WireCost::lossy(Travel::ToOwners, 1.0 / 8.0 + 4.0 / BLOCK as f64))
    }

    fn shard_state(&self) -> &'static [&'static str] {
        &["mean_worker_error", "mean_server_error"]
    }

    fn common_state(&self) -> &'static [&'static str] {
        &["momentum"]
    }

    fn check(&self, _: &str, theirs: &Settings) -> Result<(), String> {
        for (own, other) in [(self.warmup_steps, "freeze_after"), (self.beta1, "beta1")] {
            let own = Value::Number(own);
            if theirs.get(other) != Some(own) {
                return Err(format!(
                    "`onebit-adam` says the momentum of an Adam whose second moment stays as it is after the warm-up; \
                     take the optimizer `adam` or `adamw` with {other} {own}"
                ));
            }
        }
        Ok(())
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let parts = Parts::new(context.bucket, context.layout, self.dense_below as usize, |_| false);
        let momentum = Momentum::new(context, *self, &parts.compressed)?;
        Compressed::build(context, parts, momentum)
    }
}

/// Elements that have a scale in common.
struct Block {
    /// Its elements of the bucket.
    elements: Range<usize>,
    /// The shard to which the owner's error belongs, and the rank that has it.
    shard: usize,
    owner: usize,
    /// Its first byte in the message for its owner's blocks.
    start: usize,
}

struct Momentum {
    settings: OnebitAdam,
    blocks: Vec<Block>,
    /// The bytes of each rank's blocks, and their beginnings in the message of all blocks.
    bytes: Vec<usize>,
    starts: Vec<usize>,
    /// For each of this rank's shards: its message for each rank's blocks.
    encoded: Vec<Vec<Vec<u8>>>,
    worker_errors: Vec<Vec<f32>>,
    server_errors: Vec<Vec<f32>>,
    /// m of the mean over the samples, one value for each element of the bucket.
    momentum: Vec<f32>,
    /// The sum of the gradients, in the warm-up.
    exact: ShardSum,
    /// The gradients of this rank's shards, after the warm-up, which wait for the number of samples of the
    /// step.
    gradients: Vec<Vec<f32>>,
    /// Those of this rank's shards whose passes are over in the current step, and its samples.
    finished: Vec<FinishedShard>,
    samples: f32,
    values: Vec<f32>,
    /// The encoded new momentum: bytes of all ranks' blocks, one rank after another.
    new_momentum: Vec<u8>,
    is_warm_up: bool,
}

impl Momentum {
    fn new(context: &Context<'_>, settings: OnebitAdam, parts: &[Part]) -> Result<Self, Error> {
        let Context { group, bucket, assignment, .. } = *context;
        let shards: usize = assignment.shares.iter().sum();
        let ranks: Vec<usize> = assignment.owners().map(|rank| rank.0).collect();
        let (mut blocks, mut bytes) = (Vec::new(), vec![0; group.world_size()]);
        for part in parts {
            for start in part.range.clone().step_by(BLOCK) {
                let elements = start..part.range.end.min(start + BLOCK);
                let first = part.first + start - part.range.start;
                let shard = (part.span.0 + first / BLOCK) % shards;
                let (owner, start) = (ranks[shard], bytes[ranks[shard]]);
                bytes[owner] += sign_bytes(elements.len());
                blocks.push(Block { elements, shard, owner, start });
            }
        }
        let (own, len) = (assignment.shards.clone(), bucket.len);
        Ok(Momentum {
            settings,
            encoded: vec![bytes.iter().map(|bytes| vec![0; *bytes]).collect(); own.len()],
            starts: bytes.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len))).collect(),
            new_momentum: vec![0; bytes.iter().sum()],
            bytes,
            blocks,
            worker_errors: vec![vec![0.0; len]; own.len()],
            server_errors: vec![vec![0.0; len]; own.len()],
            momentum: vec![0.0; len],
            gradients: vec![vec![0.0; len]; own.len()],
            exact: ShardSum::new(group, len, own)?,
            finished: Vec::new(),
            samples: 0.0,
            values: Vec::new(),
            is_warm_up: true,
        })
    }

    fn is_warm_up(&self, step: u64) -> bool {
        (step as f64) < self.settings.warmup_steps
    }

    /// Gathers the messages of all shards for this rank's blocks, one shard after another.
    fn gather(&self, stages: Option<&Stages>, shares: &[usize], rank: usize) -> Result<Vec<u8>, CommError> {
        let Some(stages) = stages else {
            return Ok(self.encoded.iter().map(|encoded| &encoded[rank][..]).collect::<Vec<_>>().concat());
        };
        let send: Arc<[usize]> = self.bytes.iter().map(|bytes| bytes * self.encoded.len()).collect();
        let receive: Arc<[usize]> = shares.iter().map(|share| share * self.bytes[rank]).collect();
        let received: usize = receive.iter().sum();
        let mut buffer = stages.alloc::<u8>(received + send.iter().sum::<usize>())?;
        let mut rest = &mut buffer[received..];
        for encoded in
            (0..self.bytes.len()).flat_map(|to| self.encoded.iter().map(move |encoded| &encoded[to]))
        {
            let (place, others) = rest.split_at_mut(encoded.len());
            place.copy_from_slice(encoded);
            rest = others;
        }
        let buffer = stages.run(&Collective::AllToAll { send, receive }, buffer)?;
        Ok(buffer[..received].to_vec())
    }

    /// Adds the messages of the shards for a rank's blocks in tree order, with the errors of their owner,
    /// and encodes the sum. Without other ranks a block may belong to a shard of another rank: then without
    /// errors.
    fn add_up(&mut self, own: &Range<usize>, rank: usize, messages: &[u8]) {
        let (bytes, first) = (self.bytes[rank], self.starts[rank]);
        let shards = messages.len().checked_div(bytes).unwrap_or(0);
        let mut tree = TreeSum::new(shards);
        let blocks = self.blocks.iter().filter(|block| block.owner == rank);
        for Block { elements, shard, start, .. } in blocks {
            let len = elements.len();
            let sum = tree.add(len, |shard, values| {
                decode_signs(&messages[shard * bytes + start..][..sign_bytes(len)], values);
            });
            let encoded = &mut self.new_momentum[first + start..][..sign_bytes(len)];
            match shard.checked_sub(own.start).and_then(|n| self.server_errors.get_mut(n)) {
                Some(error) => {
                    let error = &mut error[elements.clone()];
                    error.iter_mut().zip(sum).for_each(|(error, sum)| *error += *sum);
                    encode_signs(error, encoded);
                }
                None => encode_signs(sum, encoded),
            }
        }
    }

    /// Sends the sums of all owners to all ranks.
    fn broadcast(&mut self, stages: &Stages) -> Result<(), CommError> {
        let mut buffer = stages.alloc::<u8>(self.new_momentum.len())?;
        buffer.copy_from_slice(&self.new_momentum);
        let chunks = Chunks::Varied(self.bytes.iter().copied().collect());
        self.new_momentum.copy_from_slice(&stages.run(&Collective::AllGather(chunks), buffer)?);
        Ok(())
    }

    /// Encodes the momentum of this rank's shards, of a step of C samples. If there are none, it encodes
    /// zeros, and the state stays.
    fn encode(&mut self) {
        let (samples, beta1) = (self.samples, self.settings.beta1 as f32);
        for (own, finished) in self.finished.iter().enumerate() {
            let part = finished.count as f32 / samples;
            for Block { elements, owner, start, .. } in &self.blocks {
                let encoded = &mut self.encoded[own][*owner][*start..][..sign_bytes(elements.len())];
                let gradient = &mut self.gradients[own][elements.clone()];
                if samples > 0.0 {
                    let error = &mut self.worker_errors[own][elements.clone()];
                    let momentum = &self.momentum[elements.clone()];
                    for ((e, m), g) in error.iter_mut().zip(momentum).zip(gradient) {
                        *e += part * beta1 * m + (1.0 - beta1) * (*g / samples);
                    }
                    encode_signs(error, encoded);
                } else {
                    gradient.fill(0.0);
                    encode_signs(gradient, encoded);
                }
            }
        }
    }
}

impl Compressor for Momentum {
    fn bytes(&self) -> usize {
        match self.is_warm_up {
            true => self.blocks.iter().map(|block| 4 * block.elements.len()).sum(),
            false => self.bytes.iter().sum(),
        }
    }

    fn take(&mut self, shard: Shard, gradient: &mut Vec<f32>) {
        self.is_warm_up = self.is_warm_up(shard.finished.step);
        if self.is_warm_up {
            self.exact.put(0, gradient, true);
            return self.exact.end_shard(shard.finished.number);
        }
        self.finished.push(shard.finished);
        std::mem::swap(&mut self.gradients[shard.own], gradient);
    }

    fn exchange(&mut self, wire: &Wire<'_>) -> Result<(), CommError> {
        // A rank without shards has not begun the step yet.
        self.is_warm_up = self.is_warm_up(wire.step);
        self.samples = wire.samples;
        if self.blocks.is_empty() {
            return Ok(());
        }
        if self.is_warm_up {
            let len = self.momentum.len();
            return wire.sum(&mut self.exact, len);
        }
        self.encode();
        let Assignment { shares, shards, .. } = wire.assignment;
        // Without other ranks it adds up all blocks, independent of their owners.
        let ranks = match wire.stages {
            Some(stages) => stages.rank().0..stages.rank().0 + 1,
            None => 0..self.bytes.len(),
        };
        for rank in ranks {
            let messages = self.gather(wire.stages, shares, rank)?;
            self.add_up(shards, rank, &messages);
        }
        wire.stages.map_or(Ok(()), |stages| self.broadcast(stages))
    }

    fn decompress(&mut self, gradient: &mut [f32]) {
        if self.blocks.is_empty() {
            return;
        }
        let (samples, beta1) = (self.samples, self.settings.beta1 as f32);
        for Block { elements, owner, start, .. } in &self.blocks {
            let momentum = &mut self.momentum[elements.clone()];
            let gradient = &mut gradient[elements.clone()];
            if samples <= 0.0 {
                // A tensor that no shard has used stays as it is, and so do Adam's moments of it.
                gradient.fill(0.0);
                continue;
            }
            if self.is_warm_up {
                gradient.copy_from_slice(&self.exact.result()[elements.clone()]);
                for (m, g) in momentum.iter_mut().zip(gradient) {
                    *m = beta1 * *m + (1.0 - beta1) * (*g / samples);
                }
                continue;
            }
            self.values.resize(elements.len(), 0.0);
            decode_signs(
                &self.new_momentum[self.starts[*owner] + start..][..sign_bytes(elements.len())],
                &mut self.values,
            );
            for ((m, g), new) in momentum.iter_mut().zip(gradient).zip(&self.values) {
                *g = samples * (new - beta1 * *m) / (1.0 - beta1);
                *m = *new;
            }
        }
    }

    fn keeps_late(&self) -> bool {
        !self.is_warm_up
    }

    fn keep_late(&mut self, own: usize, offset: usize, gradient: &[f32]) {
        if self.samples > 0.0 {
            let error = &mut self.worker_errors[own][offset..offset + gradient.len()];
            keep_more(error, gradient, self.samples / (1.0 - self.settings.beta1 as f32));
        }
    }

    fn late_is_added(&mut self, offset: usize, sum: &[f32]) {
        if self.samples > 0.0 {
            let momentum = &mut self.momentum[offset..offset + sum.len()];
            keep_more(momentum, sum, self.samples / (1.0 - self.settings.beta1 as f32));
        }
    }

    fn reset(&mut self) {
        self.exact.reset();
        self.finished.clear();
    }

    fn shard_state(&mut self) -> Vec<&mut [Vec<f32>]> {
        vec![&mut self.worker_errors, &mut self.server_errors]
    }

    fn common_state(&mut self) -> Vec<&mut [f32]> {
        vec![&mut self.momentum]
    }
}

#[cfg(test)]
mod tests {
    use kolo_comm::{Group, Rank};
    use kolo_optim::{Kind, Layout, ParamSpec};

    use super::*;
    use crate::buckets::{BucketCaps, plan, reversed};
    use crate::reduction::interface::FinishedShard;

    const LEN: usize = 300;
    const COUNTS: [f64; 3] = [4.0, 2.0, 3.0];

    fn noise(seed: usize, i: usize) -> f32 {
        ((seed * 7_919 + i * 104_729 + 13) as f32 * 0.37).sin()
    }

    /// The warm-up has the exact sum. Afterwards the difference from the new momentum is in the errors of
    /// the workers and of the owner, and the optimizer's gradient leads to that momentum.
    #[test]
    fn the_momentum_is_followed_and_nothing_is_lost() {
        let spec = ParamSpec::new("matrix", vec![LEN], Kind::Parameter { decay: true });
        let layout = Layout::new(vec![spec]);
        let bucket = plan(&layout, &reversed(&layout), BucketCaps::of_mib(1.0), false).remove(0);
        let assignment = Assignment::new(&[COUNTS.len()], Rank(0));
        let (group, layout) = (&Group::alone(), &layout);
        let context = Context { group, layout, bucket: &bucket, assignment: &assignment };
        let settings = OnebitAdam { warmup_steps: 2.0, beta1: 0.9, dense_below: 0.0 };
        let parts = Parts::new(&bucket, layout, 0, |_| false);
        let mut momentum = Momentum::new(&context, settings, &parts.compressed).unwrap();
        let count: f64 = COUNTS.iter().sum();
        let mut expected = vec![0.0f64; LEN];
        for step in 0..8 {
            let errors = |momentum: &Momentum, i: usize| -> f64 {
                let all = momentum.worker_errors.iter().chain(&momentum.server_errors);
                all.map(|errors| f64::from(errors[i])).sum()
            };
            let before: Vec<f64> = (0..LEN).map(|i| errors(&momentum, i)).collect();
            let mut sum = vec![0.0f64; LEN];
            for (number, count) in COUNTS.into_iter().enumerate() {
                let gradient: Vec<f32> = (0..LEN).map(|i| noise(step * 3 + number, i)).collect();
                sum.iter_mut().zip(&gradient).for_each(|(sum, g)| *sum += f64::from(*g));
                let finished = FinishedShard { number, step: step as u64, count };
                momentum.take(Shard { finished, own: number }, &mut gradient.clone());
            }
            let samples = count as f32;
            let wire = Wire { stages: None, assignment: &assignment, step: step as u64, samples };
            momentum.exchange(&wire).unwrap();
            let mut seen = vec![0.0; LEN];
            momentum.decompress(&mut seen);
            momentum.reset();
            for i in 0..LEN {
                // As Adam computes it from the gradients that it sees.
                expected[i] = 0.9 * expected[i] + 0.1 * f64::from(seen[i]) / count;
                assert!((expected[i] - f64::from(momentum.momentum[i])).abs() < 1e-5, "step {step}");
                let lost = 0.1 * (sum[i] - f64::from(seen[i])) / count - (errors(&momentum, i) - before[i]);
                assert!(lost.abs() < 1e-4, "step {step}, element {i}: {lost}");
            }
        }
    }
}
