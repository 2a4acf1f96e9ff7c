//! Reductions that send less than the whole gradient.
//!
//! A [`Compressor`] encodes a shard's gradient for the wire, and decodes received messages into a gradient.
//! [`Compressed`] around it has the common part: it collects a shard's gradient, sums small tensors and
//! statistics without compression, and runs all of a bucket's collectives in one place on the communication
//! thread.
//!
//! Everything is keyed by shard, tensor and block of [`BLOCK`](crate::BLOCK) elements, never by rank or
//! bucket, so neither the number of ranks nor the size of buckets changes a bit.
//!
//! There are two families. The messages of all shards are *gathered* and added by every rank ([`gathered`]:
//! they grow with the number of shards). Or the message is *linear*, so that it can be summed on its way
//! (`random-k`, `powersgd`).

mod add;
mod bits;
mod dgc;
mod ef_sign;
mod feedback;
mod gathered;
mod half_precision;
mod key;
mod matrix;
mod onebit_adam;
mod owned_parts;
mod parts;
mod power_sgd;
mod qsgd;
mod random_k;
mod selection;
mod top_k;
mod tree_sum;

use std::ops::Range;

use kolo_comm::{Collective, Error as CommError, Group, Pending, Stages, Timing};

use self::parts::Parts;
use super::interface::{Context, FinishedShard, ReadyStep, Reduction};
use crate::error::Error;
use crate::shard_sum::ShardSum;
use kolo_optim::table::Setting;
use kolo_sampler::Assignment;

pub use self::dgc::Dgc;
pub(super) use self::dgc::ENTRY as DGC;
pub(super) use self::ef_sign::ENTRY as EF_SIGN;
pub use self::ef_sign::EfSign;
pub(super) use self::half_precision::{BF16_ENTRY, F16_ENTRY};
pub use self::half_precision::{Bf16, F16};
pub(super) use self::onebit_adam::ENTRY as ONEBIT_ADAM;
pub use self::onebit_adam::OnebitAdam;
pub(super) use self::power_sgd::ENTRY as POWER_SGD;
pub use self::power_sgd::PowerSgd;
pub(super) use self::qsgd::ENTRY as QSGD;
pub use self::qsgd::Qsgd;
pub(super) use self::random_k::ENTRY as RANDOM_K;
pub use self::random_k::RandomK;
pub(super) use self::top_k::ENTRY as TOP_K;
pub use self::top_k::TopK;

/// Number of elements from which a tensor is compressed.
const DENSE_BELOW: Setting =
    Setting::whole("dense_below", 1024, 0..u64::MAX, "Tensors of fewer elements travel as they are");

/// Seed of the random numbers of a reduction.
const SEED: Setting = Setting::whole("seed", 0, 0..1 << 53, "Seed of its random numbers");

/// A shard whose gradient is complete.
#[derive(Clone, Copy)]
struct Shard {
    finished: FinishedShard,
    /// Its index among this rank's shards, from 0.
    own: usize,
}

/// Compression of the compressed parts of one bucket.
trait Compressor: Send + 'static {
    /// Bytes of one shard on the wire.
    fn bytes(&self) -> usize;

    /// Takes a shard's complete gradient, one value for each element of the bucket, and encodes it. If the
    /// message depends on kept state ([`feedback`]), it swaps the gradient for a buffer of the same length,
    /// and keeps it until [`Compressor::exchange`].
    fn take(&mut self, shard: Shard, gradient: &mut Vec<f32>);

    /// Runs the collectives that exchange the messages of all shards, on the communication thread, unless
    /// there are no other ranks.
    fn exchange(&mut self, wire: &Wire<'_>) -> Result<(), CommError>;

    /// Writes the sum over all shards to the compressed elements of the bucket.
    fn decompress(&mut self, gradient: &mut [f32]);

    /// As [`Reduction::keeps_late`], for compressed elements.
    fn keeps_late(&self) -> bool {
        false
    }

    /// As [`Reduction::keep_late`], for compressed elements.
    fn keep_late(&mut self, _own: usize, _offset: usize, _gradient: &[f32]) {}

    /// Takes the sum that [`Reduction::add_late`] adds to compressed elements.
    fn late_is_added(&mut self, _offset: usize, _sum: &[f32]) {}

    fn reset(&mut self) {}

    fn shard_state(&mut self) -> Vec<&mut [Vec<f32>]> {
        Vec::new()
    }

    fn common_state(&mut self) -> Vec<&mut [f32]> {
        Vec::new()
    }
}

/// Communication with the other ranks in one step.
struct Wire<'a> {
    stages: Option<&'a Stages>,
    assignment: &'a Assignment,
    step: u64,
    /// Samples of all shards.
    samples: f32,
}

impl Wire<'_> {
    /// Sums over the shards of all ranks, in the order of the tree.
    fn sum(&self, sum: &mut ShardSum, len: usize) -> Result<(), CommError> {
        match self.stages {
            Some(stages) => {
                let contributions = self.assignment.contributions.clone();
                let buffer = stages.run(&Collective::tree_sum(contributions, len), sum.take())?;
                sum.give_back(buffer);
            }
            None => sum.fold(),
        }
        Ok(())
    }
}

struct Compressed<C> {
    /// The gradient of the shard whose pass is running; at the end of a step the reduced one.
    gradient: Vec<f32>,
    /// Ranges of the bucket that are summed without compression, and the number of their elements.
    dense: Vec<Range<usize>>,
    dense_len: usize,
    /// The first of this rank's shards.
    first_shard: usize,
    /// `None` while it is on the wire.
    halves: Option<Halves<C>>,
    pending: Option<Pending<Halves<C>>>,
    /// True if the received messages have not been decoded into the gradient.
    is_unread: bool,
    /// Bytes of one shard on the wire.
    bytes: usize,
}

/// Both parts of a bucket, which are on the wire together.
struct Halves<C> {
    dense: Option<ShardSum>,
    compressor: C,
}

impl<C: Compressor> Halves<C> {
    fn exchange(&mut self, dense_len: usize, wire: &Wire<'_>) -> Result<(), CommError> {
        if let Some(dense) = &mut self.dense {
            wire.sum(dense, dense_len)?;
        }
        self.compressor.exchange(wire)
    }
}

impl<C: Compressor> Compressed<C> {
    /// Makes the reduction of a bucket that is divided into `parts`.
    fn build(context: &Context<'_>, parts: Parts, compressor: C) -> Result<Box<dyn Reduction>, Error> {
        let (shards, dense_len) = (context.assignment.shards.clone(), parts.dense_len());
        let first_shard = shards.start;
        let dense = match dense_len {
            0 => None,
            len => Some(ShardSum::new(context.group, len, shards)?),
        };
        Ok(Box::new(Compressed {
            gradient: vec![0.0; context.bucket.len],
            dense: parts.dense,
            dense_len,
            first_shard,
            bytes: 4 * dense_len + compressor.bytes(),
            halves: Some(Halves { dense, compressor }),
            pending: None,
            is_unread: false,
        }))
    }

    fn here(&mut self) -> &mut Halves<C> {
        self.halves.as_mut().expect("a bucket is not touched while it is being reduced")
    }
}

impl<C: Compressor> Reduction for Compressed<C> {
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

    fn end_shard(&mut self, finished: FinishedShard) {
        let halves = self.halves.as_mut().expect("a bucket is not touched while it is being reduced");
        if let Some(sum) = &mut halves.dense {
            let mut offset = 0;
            for range in &self.dense {
                sum.put(offset, &self.gradient[range.clone()], true);
                offset += range.len();
            }
            sum.end_shard(finished.number);
        }
        let shard = Shard { finished, own: finished.number - self.first_shard };
        halves.compressor.take(shard, &mut self.gradient);
    }

    fn start(&mut self, group: Option<&Group>, assignment: &Assignment, step: &ReadyStep) {
        let dense_len = self.dense_len;
        // If the sum of the losses has failed, the next collective fails, too, and nothing is reduced.
        let samples_of =
            |step: &ReadyStep| step.samples.get().filter(|samples| *samples > 0.0).unwrap_or(0.0) as f32;
        self.is_unread = true;
        match group {
            Some(group) => {
                let mut halves = self.halves.take().expect("a bucket is reduced once a step");
                let (assignment, step) = (assignment.clone(), step.clone());
                self.pending = Some(group.start_stages(move |stages| {
                    let (number, samples) = (step.number, samples_of(&step));
                    let wire = Wire { stages: Some(stages), assignment: &assignment, step: number, samples };
                    halves.exchange(dense_len, &wire).map(|()| halves)
                }));
            }
            None => {
                let alone = Wire { stages: None, assignment, step: step.number, samples: samples_of(step) };
                // Without other ranks there is no collective that could fail.
                let _ = self.here().exchange(dense_len, &alone);
            }
        }
    }

    fn is_over(&mut self) -> bool {
        self.pending.as_mut().is_some_and(Pending::is_over)
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        let mut over = None;
        if let Some(pending) = self.pending.take() {
            let (halves, timing) = pending.wait_timed()?;
            self.halves = Some(halves);
            over = Some(timing);
        }
        let Some(halves) = &mut self.halves else { return Err(Error::Lost) };
        if std::mem::take(&mut self.is_unread) {
            if let Some(sum) = &mut halves.dense {
                let mut rest = &sum.result()[..];
                for range in &self.dense {
                    let (own, others) = rest.split_at(range.len());
                    self.gradient[range.clone()].copy_from_slice(own);
                    rest = others;
                }
            }
            halves.compressor.decompress(&mut self.gradient);
            self.bytes = 4 * self.dense_len + halves.compressor.bytes();
        }
        Ok(over)
    }

    fn result(&mut self) -> &mut [f32] {
        &mut self.gradient
    }

    fn keeps_late(&self, offset: usize) -> bool {
        let is_dense = self.dense.iter().any(|range| range.contains(&offset));
        !is_dense && self.halves.as_ref().is_some_and(|halves| halves.compressor.keeps_late())
    }

    fn keep_late(&mut self, own: usize, offset: usize, gradient: &[f32]) {
        self.here().compressor.keep_late(own, offset, gradient);
    }

    fn add_late(&mut self, offset: usize, sum: &[f32]) {
        let result = &mut self.gradient[offset..offset + sum.len()];
        result.iter_mut().zip(sum).for_each(|(result, late)| *result += late);
        if !self.dense.iter().any(|range| range.contains(&offset)) {
            self.here().compressor.late_is_added(offset, sum);
        }
    }

    fn reset(&mut self) {
        let halves = self.here();
        if let Some(sum) = &mut halves.dense {
            sum.reset();
        }
        halves.compressor.reset();
    }

    fn wire_bytes(&self) -> Option<usize> {
        Some(self.bytes)
    }

    fn shard_state(&mut self) -> Vec<&mut [Vec<f32>]> {
        self.here().compressor.shard_state()
    }

    fn common_state(&mut self) -> Vec<&mut [f32]> {
        self.here().compressor.common_state()
    }
}
