//! Some elements at random, the same ones of all shards, so that they can be summed on their way.
//!
//! p = g + e is what a shard has to say; it says k elements of each block of [`BLOCK`](crate::BLOCK), drawn
//! anew in each step, and keeps the others. With `unbiased` it keeps nothing, and what it says is d/k times
//! as large, so that the mean is right. On the wire four bytes for each of them, and one all-reduce for all
//! shards.

use std::ops::Range;

use kolo_comm::{Error as CommError, Group};

use super::add::add;
use super::configured::configured;
use super::parts::{Part, Parts};
use super::selection::{count, random};
use super::top_k::DENSITY;
use super::{Compressed, Compressor, DENSE_BELOW, SEED, Shard, Wire, key};
use crate::buckets::BLOCK;
use crate::error::Error;
use crate::reduction::interface::{Context, Reducer, Reduction};
use crate::shard_sum::ShardSum;
use kolo_optim::SpanId;
use kolo_optim::table::{Entry, Setting};
use serde::Deserialize;

pub(in crate::reduction) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "random-k",
    about: "elements at random with error feedback for each shard (Stich et al. 2018, algorithm 1)",
    settings: &[
        DENSITY,
        Setting::flag("unbiased", "Keep nothing, and say all the more of what is said (Wangni et al. 2018)"),
        DENSE_BELOW,
        SEED,
    ],
    make: |settings| configured::<RandomK>(&ENTRY, settings),
};

/// Makes reductions of [`Sampled`].
#[derive(Deserialize)]
struct RandomK {
    density: f64,
    unbiased: bool,
    dense_below: f64,
    seed: f64,
}

impl Reducer for RandomK {
    fn shard_state(&self) -> &'static [&'static str] {
        match self.unbiased {
            true => &[],
            false => &["residual"],
        }
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let parts = Parts::new(context.bucket, context.layout, self.dense_below as usize, |_| false);
        let shards = context.assignment.shards.clone();
        let sampled = Sampled::new(context.group, self, &parts.compressed, context.bucket.len, shards)?;
        Compressed::build(context, parts, sampled)
    }
}

/// Elements of which some are said.
struct Block {
    /// Which ones of the bucket.
    elements: Range<usize>,
    span: SpanId,
    first: usize,
    /// Those of them that are said in the step that runs.
    chosen: Vec<u16>,
}

/// The elements that are said, of all blocks one after another.
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
    /// What a shard says.
    said: Vec<f32>,
}

impl Sampled {
    fn new(
        group: &Group,
        settings: &RandomK,
        parts: &[Part],
        len: usize,
        shards: Range<usize>,
    ) -> Result<Self, Error> {
        let blocks = parts.iter().flat_map(|part| {
            part.range.clone().step_by(BLOCK).map(|start| Block {
                elements: start..part.range.end.min(start + BLOCK),
                span: part.span,
                first: part.first + start - part.range.start,
                chosen: Vec::new(),
            })
        });
        let (blocks, density): (Vec<Block>, f64) = (blocks.collect(), settings.density.min(1.0));
        let said: usize = blocks.iter().map(|block| count(block.elements.len(), density)).sum();
        let residuals = (!settings.unbiased).then(|| vec![vec![0.0; len]; shards.len()]);
        let sum = ShardSum::new(group, said, shards)?;
        let (seed, step) = (settings.seed as u64, None);
        Ok(Sampled { density, seed, blocks, step, len: said, sum, residuals, said: Vec::new() })
    }

    /// Chooses the elements of a step.
    fn choose(&mut self, step: u64) {
        if self.step.replace(step) == Some(step) {
            return;
        }
        for Block { elements, span, first, chosen } in &mut self.blocks {
            let key = key::of_block(self.seed, step, *span, *first);
            random(key, elements.len(), count(elements.len(), self.density), chosen);
        }
    }
}

impl Compressor for Sampled {
    fn bytes(&self) -> usize {
        4 * self.len
    }

    fn compress(&mut self, shard: Shard, gradient: &[f32]) {
        self.choose(shard.finished.step);
        self.said.clear();
        for Block { elements, chosen, .. } in &self.blocks {
            let gradient = &gradient[elements.clone()];
            match &mut self.residuals {
                Some(residuals) => {
                    let residual = &mut residuals[shard.own][elements.clone()];
                    add(residual, gradient);
                    self.said.extend(chosen.iter().map(|i| std::mem::take(&mut residual[usize::from(*i)])));
                }
                None => {
                    let scale = elements.len() as f32 / chosen.len() as f32;
                    self.said.extend(chosen.iter().map(|i| gradient[usize::from(*i)] * scale));
                }
            }
        }
        self.sum.put(0, &self.said, true);
        self.sum.end_shard(shard.finished.number);
    }

    fn exchange(&mut self, wire: &Wire<'_>) -> Result<(), CommError> {
        // A rank without shards has chosen nothing.
        self.choose(wire.step);
        wire.sum(&mut self.sum, self.len)
    }

    fn decompress(&mut self, gradient: &mut [f32]) {
        let mut said = self.sum.result().iter();
        for Block { elements, chosen, .. } in &self.blocks {
            let gradient = &mut gradient[elements.clone()];
            gradient.fill(0.0);
            for (i, value) in chosen.iter().zip(&mut said) {
                gradient[usize::from(*i)] = *value;
            }
        }
    }

    fn reset(&mut self) {
        self.sum.reset();
    }

    fn shard_state(&mut self) -> Vec<&mut [Vec<f32>]> {
        self.residuals.iter_mut().map(Vec::as_mut_slice).collect()
    }
}
