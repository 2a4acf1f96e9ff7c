//! Sixteen bits an element: every shard's gradient is rounded once, the sum is computed in single precision,
//! and rounded once.
//!
//! Each rank owns a part of the bucket. It receives that part of all shards' gradients, adds it in tree
//! order, and sends the sum to all ranks. On the wire: two bytes an element and shard on the way there and
//! two an element on the way back, which is half of the exact sum's if there are as many shards as ranks.

use std::ops::Range;

use kolo_comm::schedule::{Travel, WireCost};
use kolo_comm::tree::share;
use kolo_comm::{Element, Error as CommError, Rank, Stages, bf16, f16};

use super::owned_parts::{from_owners, to_owners};
use super::parts::Parts;
use super::tree_sum::TreeSum;
use super::{Compressed, Compressor, DENSE_BELOW, Shard, Wire};
use crate::buckets::Slice;
use crate::error::Error;
use crate::reduction::interface::{Context, Reducer, Reduction};
use crate::reduction::sum::Exact;
use kolo_optim::table::Entry;
use kolo_optim::{Settings, typed_settings};

pub(in crate::reduction) const BF16_ENTRY: Entry<dyn Reducer> = Entry {
    name: "bf16",
    about: "16 bits an element with the range of f32, summed in f32: half of the bytes",
    settings: &[DENSE_BELOW],
    make: |settings| Box::new(Bf16::read(settings)),
};

pub(in crate::reduction) const F16_ENTRY: Entry<dyn Reducer> = Entry {
    name: "f16",
    about: "16 bits an element with 11 of precision, up to 65,504, summed in f32: half of the bytes",
    settings: &[DENSE_BELOW],
    make: |settings| Box::new(F16::read(settings)),
};

typed_settings! {
    /// 16 bits an element with the range of `f32` (`bf16`).
    pub struct Bf16 of BF16_ENTRY: dyn Reducer {
        /// Tensors of fewer elements travel as they are.
        dense_below: u64,
    }
}

typed_settings! {
    /// 16 bits an element with 11 of precision, up to 65,504 (`f16`).
    pub struct F16 of F16_ENTRY: dyn Reducer {
        /// Tensors of fewer elements travel as they are.
        dense_below: u64,
    }
}

/// Implements [`Reducer`] by rounding to an element, whose sums are finite below a bound.
macro_rules! rounding {
    ($($reducer:ident: $entry:ident, $element:ty, $safe_below:expr;)*) => {$(
        impl Reducer for $reducer {
            fn name(&self) -> &str {
                $entry.name
            }

            fn settings(&self) -> Settings {
                $reducer::settings(self)
            }

            fn wire_cost(&self) -> Option<WireCost> {
                Some(WireCost::lossy(Travel::ToOwners, size_of::<$element>() as f64))
            }

            fn is_sum(&self) -> bool {
                true
            }

            fn safe_below(&self) -> f32 {
                $safe_below
            }

            fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
                Rounded::<$element>::build(self.dense_below, context)
            }
        }
    )*};
}

rounding! {
    Bf16: BF16_ENTRY, bf16, Exact.safe_below();
    // Half of the largest number, for rounding.
    F16: F16_ENTRY, f16, 32_768.0;
}

/// The compressed elements of one bucket, one after another.
struct Rounded<T> {
    /// Their ranges in the bucket.
    ranges: Vec<Range<usize>>,
    len: usize,
    /// Rounded gradients of each of this rank's shards.
    own: Vec<Vec<T>>,
    sum: Vec<T>,
}

impl<T: Element<Sum = f32>> Rounded<T> {
    fn build(dense_below: u64, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let parts = Parts::new(context, dense_below, |_| false);
        let ranges: Vec<Range<usize>> = parts.compressed.iter().map(Slice::range).collect();
        let len = ranges.iter().map(Range::len).sum();
        let own = vec![vec![T::default(); len]; context.assignment.shards.len()];
        Compressed::build(context, parts, Rounded { ranges, len, own, sum: vec![T::default(); len] })
    }

    /// Adds the values of `shards` shards, which lie one after another, in the order of the tree.
    fn add_up(shards: usize, all: &[T], sum: &mut [T]) {
        // In pieces that stay in the cache.
        const PIECE: usize = 2_048;
        let (whole, mut tree) = (sum.len(), TreeSum::new(shards));
        for (start, sum) in (0..).step_by(PIECE).zip(sum.chunks_mut(PIECE)) {
            let len = sum.len();
            let read = |shard: usize, values: &mut [f32]| {
                T::widen(&all[shard * whole + start..][..len], values);
            };
            T::narrow(tree.add(len, read), sum);
        }
    }

    /// Sends each rank's part to it, adds it there, and gathers the sums.
    fn exchange_with(&mut self, stages: &Stages, shares: &[usize]) -> Result<(), CommError> {
        let (world, rank) = (stages.world_size(), stages.rank());
        let parts: Vec<usize> = (0..world).map(|rank| share(self.len, world, Rank(rank)).len()).collect();
        let received = to_owners(stages, shares, &parts, &self.own)?;
        let own = &mut self.sum[share(self.len, world, rank)];
        Self::add_up(shares.iter().sum(), &received, own);
        from_owners(stages, &parts, &mut self.sum)
    }
}

impl<T: Element<Sum = f32>> Compressor for Rounded<T> {
    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    fn take(&mut self, shard: Shard, gradient: &mut Vec<f32>) {
        let mut rest = &mut self.own[shard.own][..];
        for range in &self.ranges {
            let (own, others) = rest.split_at_mut(range.len());
            T::narrow(&gradient[range.clone()], own);
            rest = others;
        }
    }

    fn exchange(&mut self, wire: &Wire<'_>) -> Result<(), CommError> {
        match wire.stages {
            _ if self.len == 0 => Ok(()),
            Some(stages) => self.exchange_with(stages, &wire.assignment.shares),
            None => {
                Self::add_up(self.own.len(), &self.own.concat(), &mut self.sum);
                Ok(())
            }
        }
    }

    fn decompress(&mut self, gradient: &mut [f32]) {
        let mut rest = &self.sum[..];
        for range in &self.ranges {
            let (own, others) = rest.split_at(range.len());
            T::widen(own, &mut gradient[range.clone()]);
            rest = others;
        }
    }
}
