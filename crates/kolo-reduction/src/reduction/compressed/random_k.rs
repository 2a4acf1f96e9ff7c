//! Random elements, the same ones of all shards, so that they can be summed on their way.
//!
//! A shard has p = g + C·e to send ([`feedback`](super::feedback)). It sends k elements of each block of
//! [`BLOCK`](crate::BLOCK), drawn anew in each step, and keeps the others. With `unbiased` it keeps nothing,
//! and multiplies the sent elements by d/k, so that the mean is right. On the wire four bytes for each of
//! them, and one all-reduce for all shards.

use std::ops::Range;

use kolo_comm::schedule::{Travel, WireCost};
use kolo_comm::{Error as CommError, Group};

use super::feedback::{keep, keep_more, recall};
use super::parts::Parts;
use super::selection::{count, random};
use super::top_k::DENSITY;
use super::{Compressed, Compressor, DENSE_BELOW, SEED, Shard, Wire, key};
use crate::buckets::Slice;
use crate::error::Error;
use crate::reduction::interface::{Context, Reducer, Reduction};
use crate::shard_sum::ShardSum;
use kolo_optim::Settings;
use kolo_optim::table::{Entry, Setting};
use kolo_optim::typed_settings;

pub(in crate::reduction) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "random-k",
    about: "elements at random with error feedback for each shard (Stich et al. 2018, algorithm 1)",
    settings: &[
        DENSITY,
        Setting::flag("unbiased", "Keep no residuals, and scale up what travels (Wangni et al. 2018)"),
        DENSE_BELOW,
        SEED,
    ],
    make: |settings| Box::new(RandomK::read(settings)),
};

typed_settings! {
    /// Random elements (`random-k`).
    pub struct RandomK of ENTRY: dyn Reducer {
        /// Share of the elements that is sent in a step.
        density: f64,
        /// Nothing is kept, and what is sent is multiplied, so that its mean is right.
        unbiased: bool,
        /// Tensors of fewer elements travel as they are.
        dense_below: u64,
        /// Seed of the random numbers.
        seed: u64,
    }
}

impl Reducer for RandomK {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        RandomK::settings(self)
    }

    fn wire_cost(&self) -> Option<WireCost> {
        Some(WireCost::lossy(Travel::Summed { rounds: 1 }, 4.0 * self.density))
    }

    fn shard_state(&self) -> &'static [&'static str] {
        match self.unbiased {
            true => &[],
            false => &["mean_residual"],
        }
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let parts = Parts::new(context, self.dense_below, |_| false);
        let shards = context.assignment.shards.clone();
        let sampled = Sampled::new(context.group, self, &parts, context.bucket.len, shards)?;
        Compressed::build(context, parts, sampled)
    }
}

/// Elements of which some are sent.
struct Block {
    slice: Slice,
    /// Those of them that are sent in the current step.
    chosen: Vec<u16>,
}

/// The sent elements of all blocks, one after another.
struct Sampled {
    density: f64,
    seed: u64,
    blocks: Vec<Block>,
    /// The step for which they are chosen.
    step: Option<u64>,
    len: usize,
    sum: ShardSum,
    /// For each of this rank's shards; `None` if nothing is kept.
    residuals: Option<Vec<Vec<f32>>>,
    /// The gradients of this rank's shards, which wait for the number of samples of the step; only if
    /// something is kept.
    gradients: Vec<Vec<f32>>,
    /// Samples of the current step.
    samples: f32,
    /// Message of a shard.
    sent: Vec<f32>,
}

impl Sampled {
    fn new(
        group: &Group,
        settings: &RandomK,
        parts: &Parts,
        len: usize,
        shards: Range<usize>,
    ) -> Result<Self, Error> {
        let blocks = parts.blocks().map(|slice| Block { slice, chosen: Vec::new() });
        let (blocks, density): (Vec<Block>, f64) = (blocks.collect(), settings.density.min(1.0));
        let sent: usize = blocks.iter().map(|block| count(block.slice.elements.len(), density)).sum();
        let residuals = (!settings.unbiased).then(|| vec![vec![0.0; len]; shards.len()]);
        let gradients = residuals.clone().unwrap_or_default();
        let sum = ShardSum::new(group, sent, shards)?;
        let (seed, step) = (settings.seed, None);
        Ok(Sampled {
            density,
            seed,
            blocks,
            step,
            len: sent,
            sum,
            residuals,
            gradients,
            samples: 0.0,
            sent: Vec::new(),
        })
    }

    fn choose(&mut self, step: u64) {
        if self.step.replace(step) == Some(step) {
            return;
        }
        for Block { slice, chosen } in &mut self.blocks {
            let (key, len) =
                (key::of_block(self.seed, step, slice.span, slice.elements.start), slice.elements.len());
            random(key, len, count(len, self.density), chosen);
        }
    }

    /// Adds the messages of these shards of this rank, from their gradients and their kept state.
    fn add_messages(&mut self, shards: Range<usize>) {
        let Sampled { blocks, residuals: Some(residuals), gradients, sent, sum, samples, .. } = self else {
            return;
        };
        for ((number, residual), gradient) in shards.zip(residuals).zip(gradients) {
            sent.clear();
            for Block { slice, chosen } in &*blocks {
                let (gradient, residual) = (&mut gradient[slice.range()], &mut residual[slice.range()]);
                if *samples > 0.0 {
                    recall(gradient, residual, *samples);
                } else {
                    gradient.fill(0.0);
                }
                sent.extend(chosen.iter().map(|i| std::mem::take(&mut gradient[usize::from(*i)])));
                if *samples > 0.0 {
                    keep(residual, gradient, *samples);
                }
            }
            sum.put(0, sent, true);
            sum.end_shard(number);
        }
    }
}

impl Compressor for Sampled {
    fn bytes(&self) -> usize {
        4 * self.len
    }

    fn take(&mut self, shard: Shard, gradient: &mut Vec<f32>) {
        if self.residuals.is_some() {
            return std::mem::swap(&mut self.gradients[shard.own], gradient);
        }
        self.choose(shard.finished.step);
        self.sent.clear();
        for Block { slice, chosen } in &self.blocks {
            let (gradient, scale) =
                (&gradient[slice.range()], slice.elements.len() as f32 / chosen.len() as f32);
            self.sent.extend(chosen.iter().map(|i| gradient[usize::from(*i)] * scale));
        }
        self.sum.put(0, &self.sent, true);
        self.sum.end_shard(shard.finished.number);
    }

    fn exchange(&mut self, wire: &Wire<'_>) -> Result<(), CommError> {
        // A rank without shards has not chosen yet.
        self.choose(wire.step);
        self.samples = wire.samples;
        if self.residuals.is_some() {
            self.add_messages(wire.assignment.shards.clone());
        }
        wire.sum(&mut self.sum, self.len)
    }

    fn decompress(&mut self, gradient: &mut [f32]) {
        let mut sent = self.sum.result().iter();
        for Block { slice, chosen } in &self.blocks {
            let gradient = &mut gradient[slice.range()];
            gradient.fill(0.0);
            for (i, value) in chosen.iter().zip(&mut sent) {
                gradient[usize::from(*i)] = *value;
            }
        }
    }

    fn keeps_late(&self) -> bool {
        self.residuals.is_some()
    }

    fn keep_late(&mut self, own: usize, offset: usize, gradient: &[f32]) {
        if let (Some(residuals), true) = (&mut self.residuals, self.samples > 0.0) {
            keep_more(&mut residuals[own][offset..offset + gradient.len()], gradient, self.samples);
        }
    }

    fn reset(&mut self) {
        self.sum.reset();
    }

    fn shard_state(&mut self) -> Vec<&mut [Vec<f32>]> {
        self.residuals.iter_mut().map(Vec::as_mut_slice).collect()
    }
}
