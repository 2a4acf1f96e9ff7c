//! Compression whose messages from all shards are gathered by all ranks, which add them in tree order.
//!
//! On the wire: the [`Codec`]'s message for each block of [`BLOCK`](crate::BLOCK) elements of a tensor, for
//! each *shard*. That is less than the sum's 64 bits an element if a shard's message is shorter than that
//! divided by the number of shards.

use std::sync::Arc;

use kolo_comm::schedule::Chunks;
use kolo_comm::{Buffer, Collective, Error as CommError};

use super::feedback::keep_more;
use super::parts::Parts;
use super::tree_sum::TreeSum;
use super::{Compressed, Compressor, Shard, Wire};
use crate::buckets::Slice;
use crate::error::Error;
use crate::reduction::interface::{Context, FinishedShard, Reduction};
use kolo_optim::SpanId;
use kolo_sampler::Assignment;

/// Encoding of a block of elements of one tensor.
pub(super) trait Codec: Send + 'static {
    /// Number of values that it keeps for each element and shard from step to step.
    const KEEPS: usize;

    /// Begins a step, in which encoded blocks may become longer or shorter.
    fn begin(&mut self, _: u64) {}

    /// Bytes of an encoded block of `len` elements.
    fn bytes(&self, len: usize) -> usize;

    /// Encodes a block of a shard's gradient in that many bytes. Updates `kept`, which has the state of each
    /// of its elements. The gradient may be overwritten.
    fn encode(&mut self, place: Place, gradient: &mut [f32], kept: &mut Kept<'_>, encoded: &mut [u8]);

    /// Keeps a late part of a block's gradient, after the block was encoded.
    fn keep_late(&self, _: Place, gradient: &mut [f32], kept: &mut Kept<'_>) {
        let Kept { of_mean, samples } = kept;
        of_mean.iter_mut().for_each(|kept| keep_more(kept, gradient, *samples));
    }

    /// Decodes a block.
    fn decode(&self, encoded: &[u8], values: &mut [f32]);
}

/// State of a shard for the elements of a block.
pub(super) struct Kept<'a> {
    /// For each kind of state a part of the mean over the samples.
    pub(super) of_mean: Vec<&'a mut [f32]>,
    /// Samples of all shards in the current step; 1 if nothing is kept.
    pub(super) samples: f32,
}

/// Position of a block that is to be encoded.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) shard: FinishedShard,
    pub(super) span: SpanId,
    /// The block's first element of the tensor.
    pub(super) first: usize,
}

/// Elements that are encoded together.
struct Block {
    slice: Slice,
    /// Its first byte in a shard's message.
    start: usize,
}

pub(super) struct Gathered<C> {
    codec: C,
    blocks: Vec<Block>,
    /// Bytes of one shard on the wire.
    bytes: usize,
    /// Message of each of this rank's shards.
    own: Vec<Vec<u8>>,
    /// For each kind of state and each of this rank's shards.
    kept: Vec<Vec<Vec<f32>>>,
    /// Gradients of this rank's shards, which wait for the number of samples of the step; only if something
    /// is kept.
    gradients: Vec<Vec<f32>>,
    /// Those of this rank's shards whose passes are over in the current step, and its samples.
    finished: Vec<FinishedShard>,
    samples: f32,
    /// Messages of all shards, one after another; `None` if this rank is alone.
    wire: Option<Buffer<u8>>,
    /// Number of shards with a message: all of the job's, or this rank's own if it is alone.
    senders: usize,
}

impl<C: Codec> Gathered<C> {
    /// Makes the reduction of a bucket, whose tensors of fewer than `dense_below` elements are not
    /// compressed.
    pub(super) fn build(
        codec: C,
        context: &Context<'_>,
        dense_below: u64,
    ) -> Result<Box<dyn Reduction>, Error> {
        let parts = Parts::new(context, dense_below, |_| false);
        let (len, shards) = (context.bucket.len, context.assignment.shards.len());
        let mut gathered = Gathered {
            blocks: parts.blocks().map(|slice| Block { slice, start: 0 }).collect(),
            bytes: 0,
            own: vec![Vec::new(); shards],
            kept: vec![vec![vec![0.0; len]; shards]; C::KEEPS],
            gradients: vec![vec![0.0; if C::KEEPS > 0 { len } else { 0 }]; shards],
            finished: Vec::new(),
            samples: 0.0,
            wire: None,
            senders: 0,
            codec,
        };
        gathered.place_blocks();
        Compressed::build(context, parts, gathered)
    }

    fn place_blocks(&mut self) {
        self.bytes = 0;
        for block in &mut self.blocks {
            block.start = self.bytes;
            self.bytes += self.codec.bytes(block.slice.elements.len());
        }
    }

    fn begin(&mut self, step: u64) {
        self.codec.begin(step);
        self.place_blocks();
    }

    /// Encodes a shard's gradient, in a step of `samples` samples.
    fn encode(&mut self, shard: Shard, gradient: &mut [f32], samples: f32) {
        let Gathered { codec, blocks, bytes, own, kept, .. } = self;
        let own = &mut own[shard.own];
        own.resize(*bytes, 0);
        for block in blocks {
            let encoded = &mut own[block.start..][..codec.bytes(block.slice.elements.len())];
            let gradient = &mut gradient[block.slice.range()];
            let place = block.place(shard.finished);
            if samples > 0.0 {
                let mut kept = Kept { of_mean: block.of(kept, shard.own), samples };
                codec.encode(place, gradient, &mut kept, encoded);
                continue;
            }
            // Nothing will be applied, so zeros are sent, and the state stays.
            gradient.fill(0.0);
            let mut nothing = vec![vec![0.0; gradient.len()]; C::KEEPS];
            let of_mean = nothing.iter_mut().map(Vec::as_mut_slice).collect();
            codec.encode(place, gradient, &mut Kept { of_mean, samples: 1.0 }, encoded);
        }
    }
}

impl Block {
    fn place(&self, shard: FinishedShard) -> Place {
        Place { shard, span: self.slice.span, first: self.slice.elements.start }
    }

    /// The state of its elements of one shard.
    fn of<'a>(&self, kept: &'a mut [Vec<Vec<f32>>], own: usize) -> Vec<&'a mut [f32]> {
        kept.iter_mut().map(|kind| &mut kind[own][self.slice.range()]).collect()
    }
}

impl<C: Codec> Compressor for Gathered<C> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn take(&mut self, shard: Shard, gradient: &mut Vec<f32>) {
        if C::KEEPS > 0 {
            self.finished.push(shard.finished);
            return std::mem::swap(&mut self.gradients[shard.own], gradient);
        }
        self.begin(shard.finished.step);
        self.encode(shard, gradient, 1.0);
    }

    fn exchange(&mut self, wire: &Wire<'_>) -> Result<(), CommError> {
        // A rank without shards has not begun the step yet.
        self.begin(wire.step);
        self.samples = wire.samples;
        for own in 0..self.finished.len() {
            let mut gradient = std::mem::take(&mut self.gradients[own]);
            let shard = Shard { finished: self.finished[own], own };
            self.encode(shard, &mut gradient, wire.samples);
            self.gradients[own] = gradient;
        }
        let Wire { stages, assignment: Assignment { shares, shards, .. }, .. } = wire;
        self.senders = if stages.is_some() { shares.iter().sum() } else { shards.len() };
        let (Some(stages), 1..) = (stages, self.bytes) else {
            self.wire = None;
            return Ok(());
        };
        let len = self.senders * self.bytes;
        let last = self.wire.take().filter(|buffer| buffer.len() == len);
        let mut buffer = last.map_or_else(|| stages.alloc(len), Ok)?;
        for (shard, own) in (shards.start..).zip(&self.own) {
            buffer[shard * self.bytes..][..self.bytes].copy_from_slice(own);
        }
        let chunks: Arc<[usize]> = shares.iter().map(|share| share * self.bytes).collect();
        self.wire = Some(stages.run(&Collective::AllGather(Chunks::Varied(chunks)), buffer)?);
        Ok(())
    }

    /// Adds the messages of the shards, in the order of the tree.
    fn decompress(&mut self, gradient: &mut [f32]) {
        let Gathered { codec, blocks, bytes, own, wire, senders, .. } = self;
        let encoded = |shard: usize| match &wire {
            Some(wire) => &wire[shard * *bytes..][..*bytes],
            None => &own[shard],
        };
        let mut sum = TreeSum::new(*senders);
        for Block { slice, start } in blocks {
            let len = slice.elements.len();
            let read = |shard: usize, values: &mut [f32]| {
                codec.decode(&encoded(shard)[*start..][..codec.bytes(len)], values);
            };
            gradient[slice.range()].copy_from_slice(sum.add(len, read));
        }
    }

    fn keeps_late(&self) -> bool {
        C::KEEPS > 0
    }

    fn keep_late(&mut self, own: usize, offset: usize, gradient: &[f32]) {
        let Gathered { codec, blocks, kept, finished, samples, .. } = self;
        let range = offset..offset + gradient.len();
        // Slices and blocks begin at the same multiples, so a block is either in the slice or not.
        for block in blocks.iter().filter(|block| *samples > 0.0 && range.contains(&block.slice.offset)) {
            let mut late = gradient[block.slice.offset - offset..][..block.slice.elements.len()].to_vec();
            let mut kept = Kept { of_mean: block.of(kept, own), samples: *samples };
            codec.keep_late(block.place(finished[own]), &mut late, &mut kept);
        }
    }

    fn reset(&mut self) {
        self.finished.clear();
    }

    fn shard_state(&mut self) -> Vec<&mut [Vec<f32>]> {
        self.kept.iter_mut().map(Vec::as_mut_slice).collect()
    }
}
