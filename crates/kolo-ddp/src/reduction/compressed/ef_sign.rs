//! One bit an element, with what that leaves out carried to the next step.
//!
//! Every shard has a residual e. In each step p = g + e is what it has to say, Δ = (‖p‖₁/d)·sign(p) is what
//! it says, and p − Δ is its residual of the next step; the optimizer sees ΣΔ over all shards. So nothing is
//! lost, only late: Σ over steps of what was applied, and what the residuals hold, is the sum of the
//! gradients.
//!
//! Residuals belong to shards, not to ranks, and the scale ‖p‖₁/d to blocks of [`BLOCK`] elements of a
//! tensor. So neither the number of ranks nor the size of buckets changes a bit.
//!
//! On the wire: one bit an element and four bytes a block for each *shard*, gathered by all ranks, which add
//! them in tree order. That is less than the sum's 64 bits an element where there are fewer than 64 shards.
//!
//! Statistics travel as they are, four bytes an element and shard, and are summed exactly.

use std::ops::Range;
use std::sync::Arc;

use kolo_comm::schedule::Chunks;
use kolo_comm::tree::{Fold, Node, fold};
use kolo_comm::{Buffer, Collective, Group, Pending};

use super::interface::{Context, Entry, Reduction};
use crate::buckets::BLOCK;
use crate::error::Error;
use crate::shares::Assignment;
use kolo_optim::Kind;

pub(super) const ENTRY: Entry = Entry {
    name: "ef-sign",
    about: "1 bit an element with error feedback for each shard (Karimireddy et al. 2019, algorithm 2)",
    keeps_residuals: true,
    build: |context| Ok(Box::new(EfSign::new(context)?)),
};

/// The signs of one bucket.
struct EfSign {
    blocks: Vec<Block>,
    /// Bytes of one shard on the wire.
    bytes: usize,
    /// This rank's shards.
    shards: Range<usize>,
    /// The gradient of the shard whose pass is under way; at the end of a step what the optimizer sees.
    gradient: Vec<f32>,
    /// For each of this rank's shards.
    residuals: Vec<Vec<f32>>,
    /// What all shards say, one after another; away while it is on the wire.
    wire: Option<Buffer<u8>>,
    pending: Option<Pending<u8>>,
    /// Shards that have spoken and have not been added.
    unread: Option<Range<usize>>,
    /// Partial sums of one block.
    stack: Vec<f32>,
}

/// Elements that have a scale in common.
struct Block {
    /// Which ones of the bucket.
    elements: Range<usize>,
    /// Where they are among a shard's bytes.
    start: usize,
    exact: bool,
}

impl Block {
    fn bytes(&self) -> usize {
        if self.exact { 4 * self.elements.len() } else { 4 + self.elements.len().div_ceil(8) }
    }
}

impl EfSign {
    fn new(context: &Context<'_>) -> Result<Self, Error> {
        let Context { group, layout, bucket, assignment } = *context;
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        for slice in &bucket.slices {
            let exact = layout.span(slice.span).spec.kind == Kind::Statistic;
            for start in slice.range().step_by(BLOCK) {
                let elements = start..slice.range().end.min(start + BLOCK);
                let block = Block { elements, start: bytes, exact };
                bytes += block.bytes();
                blocks.push(block);
            }
        }
        let shards = assignment.shards.clone();
        let wire = group.alloc(bytes * assignment.shares.iter().sum::<usize>())?;
        Ok(EfSign {
            blocks,
            bytes,
            gradient: vec![0.0; bucket.len],
            residuals: vec![vec![0.0; bucket.len]; shards.len()],
            shards,
            wire: Some(wire),
            pending: None,
            unread: None,
            stack: Vec::new(),
        })
    }

    /// Adds what these shards say, in the order of the tree.
    fn add_up(&mut self, shards: Range<usize>) {
        let wire = self.wire.as_ref().expect("a bucket is added when it is back");
        let program = fold(&shards.clone().map(Node::leaf).collect::<Vec<_>>());
        for block in &self.blocks {
            let len = block.elements.len();
            let mut depth = 0;
            for step in &program {
                match step {
                    Fold::Push(shard) => {
                        let start = (shards.start + shard) * self.bytes + block.start;
                        self.stack.resize(self.stack.len().max((depth + 1) * len), 0.0);
                        let said = &wire[start..start + block.bytes()];
                        read(said, block.exact, &mut self.stack[depth * len..][..len]);
                        depth += 1;
                    }
                    Fold::Add => {
                        let (left, right) = self.stack[(depth - 2) * len..depth * len].split_at_mut(len);
                        left.iter_mut().zip(right).for_each(|(sum, x)| *sum += *x);
                        depth -= 1;
                    }
                }
            }
            self.gradient[block.elements.clone()].copy_from_slice(&self.stack[..len]);
        }
    }
}

impl Reduction for EfSign {
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool) {
        let target = &mut self.gradient[offset..offset + gradient.len()];
        if first {
            target.copy_from_slice(gradient);
        } else {
            target.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
        }
    }

    fn add_nothing(&mut self, offset: usize, len: usize) {
        self.gradient[offset..offset + len].fill(0.0);
    }

    fn end_shard(&mut self, shard: usize) {
        let start = shard * self.bytes;
        let wire = self.wire.as_mut().expect("a bucket is not touched while it is being reduced");
        for block in &self.blocks {
            let said = &mut wire[start + block.start..][..block.bytes()];
            let gradient = &self.gradient[block.elements.clone()];
            if block.exact {
                said.chunks_exact_mut(4)
                    .zip(gradient)
                    .for_each(|(word, g)| word.copy_from_slice(&g.to_le_bytes()));
            } else {
                let residual = &mut self.residuals[shard - self.shards.start][block.elements.clone()];
                residual.iter_mut().zip(gradient).for_each(|(e, g)| *e += g);
                say(residual, said);
            }
        }
    }

    fn start(&mut self, group: Option<&Group>, assignment: &Assignment) {
        let Some(group) = group else {
            self.unread = Some(self.shards.clone());
            return;
        };
        let chunks: Arc<[usize]> = assignment.shares.iter().map(|share| share * self.bytes).collect();
        let wire = self.wire.take().expect("a bucket is reduced once a step");
        self.pending = Some(group.start(Collective::AllGather(Chunks::Varied(chunks)), wire));
        self.unread = Some(0..assignment.shares.iter().sum());
    }

    fn is_over(&mut self) -> bool {
        self.pending.as_mut().is_some_and(Pending::is_over)
    }

    fn wait(&mut self) -> Result<Option<f64>, Error> {
        let mut seconds = None;
        if let Some(pending) = self.pending.take() {
            let (wire, timing) = pending.wait_timed()?;
            self.wire = Some(wire);
            seconds = Some((timing.ended - timing.started).as_secs_f64());
        }
        if self.wire.is_none() {
            return Err(Error::Lost);
        }
        if let Some(shards) = self.unread.take() {
            self.add_up(shards);
        }
        Ok(seconds)
    }

    fn result(&mut self) -> &mut [f32] {
        &mut self.gradient
    }

    fn reset(&mut self) {}

    fn residuals(&mut self) -> &mut [Vec<f32>] {
        &mut self.residuals
    }
}

/// Says what can be said of `values` in one bit each and a scale; what cannot is left in them.
fn say(values: &mut [f32], said: &mut [u8]) {
    let scale = (sum_of_magnitudes(values) / values.len() as f64) as f32;
    let (head, bits) = said.split_at_mut(4);
    head.copy_from_slice(&scale.to_le_bytes());
    for (bits, values) in bits.iter_mut().zip(values.chunks_mut(8)) {
        *bits = 0;
        for (bit, value) in values.iter_mut().enumerate() {
            let is_positive = *value >= 0.0;
            *bits |= u8::from(is_positive) << bit;
            *value -= if is_positive { scale } else { -scale };
        }
    }
}

/// Reads what a shard says of a block.
fn read(said: &[u8], exact: bool, values: &mut [f32]) {
    let float = |word: &[u8]| f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    if exact {
        return values.iter_mut().zip(said.chunks_exact(4)).for_each(|(value, word)| *value = float(word));
    }
    let (head, bits) = said.split_at(4);
    let scales = [-float(head), float(head)];
    for (bits, values) in bits.iter().zip(values.chunks_mut(8)) {
        values.iter_mut().enumerate().for_each(|(bit, value)| *value = scales[usize::from(bits >> bit & 1)]);
    }
}

/// In double precision, as eight running sums, so that vector instructions can be used; their number is
/// fixed, so the bits are, too.
fn sum_of_magnitudes(values: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let mut chunks = values.chunks_exact(8);
    for chunk in &mut chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f64::from(x.abs()));
    }
    let rest: f64 = chunks.remainder().iter().map(|x| f64::from(x.abs())).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The algorithm in double precision, straight from the paper.
    #[test]
    fn says_the_sign_and_the_mean_magnitude_and_keeps_the_rest() {
        for len in [1usize, 7, 8, 9, 300] {
            let said_before: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7 + 0.3).sin()).collect();
            let scale = said_before.iter().map(|p| f64::from(p.abs())).sum::<f64>() / len as f64;
            let (mut kept, mut wire) = (said_before.clone(), vec![0xff; 4 + len.div_ceil(8)]);
            say(&mut kept, &mut wire);
            let mut heard = vec![0.0; len];
            read(&wire, false, &mut heard);
            for ((p, kept), heard) in said_before.iter().zip(&kept).zip(&heard) {
                assert!(
                    (f64::from(*heard) - f64::from(p.signum()) * scale).abs() < 1e-7,
                    "{len}: {p} as {heard}"
                );
                assert!((heard + kept - p).abs() < 1e-6, "{len}: {heard} + {kept} is not {p}");
            }
        }
    }

    #[test]
    fn what_is_not_a_number_is_not_hidden() {
        let (mut values, mut wire) = ([1.0, f32::NAN, -2.0], [0; 5]);
        say(&mut values, &mut wire);
        let mut heard = [0.0; 3];
        read(&wire, false, &mut heard);
        assert!(heard.iter().all(|value| value.is_nan()));
    }
}
