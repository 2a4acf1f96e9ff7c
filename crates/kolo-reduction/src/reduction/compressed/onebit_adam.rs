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

use kolo_comm::Error as CommError;
use kolo_comm::schedule::{Travel, WireCost};

use super::ef_sign::{decode_signs, encode_signs, sign_bytes};
use super::feedback::keep_more;
use super::owned_parts::{from_owners, to_owners};
use super::parts::Parts;
use super::tree_sum::TreeSum;
use super::{Compressed, Compressor, DENSE_BELOW, Shard, Wire};
use crate::buckets::{BLOCK, Slice};
use crate::error::Error;
use crate::reduction::interface::{Context, FinishedShard, Reducer, Reduction};
use crate::shard_sum::ShardSum;
use kolo_optim::Settings;
use kolo_optim::table::{Entry, Setting, Value};
use kolo_optim::typed_settings;
use kolo_sampler::Assignment;

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
    make: |settings| Box::new(OnebitAdam::read(settings)),
};

typed_settings! {
    /// 1-bit Adam (`onebit-adam`).
    pub struct OnebitAdam of ENTRY: dyn Reducer {
        /// Steps with exact sums; as the optimizer's `freeze_after`.
        warmup_steps: u64,
        /// Decay of the first moment; as the optimizer's.
        beta1: f64,
        /// Tensors of fewer elements travel as they are.
        dense_below: u64,
    }
}

impl Reducer for OnebitAdam {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        OnebitAdam::settings(self)
    }

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
        for (own, other) in [(self.warmup_steps as f64, "freeze_after"), (self.beta1, "beta1")] {
            let own = Value::Number(own);
            if theirs.get(other) != Some(own) {
                let option = other.replace('_', "-");
                return Err(format!(
                    "`onebit-adam` says the momentum of an Adam whose second moment stays as it is after the warm-up; \
                     take the optimizer `adam` or `adamw` with {other} {own} (--{option} {own})"
                ));
            }
        }
        Ok(())
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let parts = Parts::new(context, self.dense_below, |_| false);
        let momentum = Momentum::new(context, *self, &parts)?;
        Compressed::build(context, parts, momentum)
    }
}

/// Elements that have a scale in common.
struct Block {
    /// Its elements of the bucket.
    elements: Range<usize>,
    /// The shard to which its owner's error belongs.
    shard: usize,
    /// Its bytes in a message.
    bytes: Range<usize>,
}

struct Momentum {
    settings: OnebitAdam,
    blocks: Vec<Block>,
    /// The bytes of each rank's blocks, which lie in rank order in a message.
    bytes: Vec<usize>,
    /// Messages of this rank's shards.
    encoded: Vec<Vec<u8>>,
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
    /// The encoded new momentum.
    new_momentum: Vec<u8>,
    is_warm_up: bool,
}

impl Momentum {
    fn new(context: &Context<'_>, settings: OnebitAdam, parts: &Parts) -> Result<Self, Error> {
        let Context { group, bucket, assignment, .. } = *context;
        let shards: usize = assignment.shares.iter().sum();
        let owners: Vec<usize> = assignment.owners().map(|rank| rank.0).collect();
        let shard_of = |slice: &Slice| (slice.span.0 + slice.elements.start / BLOCK) % shards;
        let mut slices: Vec<Slice> = parts.blocks().collect();
        slices.sort_by_key(|slice| owners[shard_of(slice)]);
        let (mut blocks, mut bytes, mut end) = (Vec::new(), vec![0; group.world_size()], 0);
        for slice in slices {
            let (shard, len) = (shard_of(&slice), sign_bytes(slice.elements.len()));
            bytes[owners[shard]] += len;
            blocks.push(Block { elements: slice.range(), shard, bytes: end..end + len });
            end += len;
        }
        let (own, len) = (assignment.shards.clone(), bucket.len);
        Ok(Momentum {
            settings,
            encoded: vec![vec![0; end]; own.len()],
            new_momentum: vec![0; end],
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
        step < self.settings.warmup_steps
    }

    /// Adds a part of the messages of the shards, one after another, in tree order, with the errors of the
    /// blocks' owner, and encodes the sum. Without other ranks a block may belong to a shard of another
    /// rank: then without errors.
    fn add_up(&mut self, own: &Range<usize>, part: Range<usize>, messages: &[u8]) {
        let shards = messages.len().checked_div(part.len()).unwrap_or(0);
        let mut tree = TreeSum::new(shards);
        for Block { elements, shard, bytes } in self.blocks.iter().filter(|b| part.contains(&b.bytes.start)) {
            let sum = tree.add(elements.len(), |shard, values| {
                let first = shard * part.len() + bytes.start - part.start;
                decode_signs(&messages[first..][..bytes.len()], values);
            });
            let encoded = &mut self.new_momentum[bytes.clone()];
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

    /// Encodes the momentum of this rank's shards, of a step of C samples. If there are none, it encodes
    /// zeros, and the state stays.
    fn encode(&mut self) {
        let (samples, beta1) = (self.samples, self.settings.beta1 as f32);
        for (own, finished) in self.finished.iter().enumerate() {
            let part = finished.count as f32 / samples;
            for Block { elements, bytes, .. } in &self.blocks {
                let encoded = &mut self.encoded[own][bytes.clone()];
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
            false => self.new_momentum.len(),
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
        let Some(stages) = wire.stages else {
            // Without other ranks it adds up all blocks, independent of their owners.
            self.add_up(shards, 0..self.new_momentum.len(), &self.encoded.concat());
            return Ok(());
        };
        let rank = stages.rank().0;
        let first = self.bytes[..rank].iter().sum();
        let messages = to_owners(stages, shares, &self.bytes, &self.encoded)?;
        let received = shares.iter().sum::<usize>() * self.bytes[rank];
        self.add_up(shards, first..first + self.bytes[rank], &messages[..received]);
        from_owners(stages, &self.bytes, &mut self.new_momentum)
    }

    fn decompress(&mut self, gradient: &mut [f32]) {
        if self.blocks.is_empty() {
            return;
        }
        let (samples, beta1) = (self.samples, self.settings.beta1 as f32);
        for Block { elements, bytes, .. } in &self.blocks {
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
            decode_signs(&self.new_momentum[bytes.clone()], &mut self.values);
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
    fn another_optimizer_is_answered_with_the_option() {
        let told = |theirs: &Settings| Reducer::check(&OnebitAdam::default(), "adam", theirs).unwrap_err();
        let frozen = Settings::default().with("freeze_after", 1000.0);
        let words = told(&Settings::default());
        assert!(words.ends_with("with freeze_after 1000 (--freeze-after 1000)"), "{words}");
        let words = told(&frozen);
        assert!(words.ends_with("with beta1 0.9 (--beta1 0.9)"), "{words}");
    }

    #[test]
    fn the_momentum_is_followed_and_nothing_is_lost() {
        let spec = ParamSpec::new("matrix", vec![LEN], Kind::Parameter { decay: true });
        let layout = Layout::new(vec![spec]);
        let bucket = plan(&layout, &reversed(&layout), BucketCaps::of_mib(1.0), false).remove(0);
        let assignment = Assignment::new(&[COUNTS.len()], Rank(0));
        let (group, layout) = (&Group::alone(), &layout);
        let context = Context { group, layout, bucket: &bucket, assignment: &assignment };
        let settings = OnebitAdam { warmup_steps: 2, beta1: 0.9, dense_below: 0 };
        let parts = Parts::new(&context, 0, |_| false);
        let mut momentum = Momentum::new(&context, settings, &parts).unwrap();
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
