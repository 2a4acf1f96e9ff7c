//! Check that the gradient of a step is finite, before a parameter changes.
//!
//! Each contribution is checked where it is copied into its bucket, while it is in the cache. The agreement,
//! for which the ranks meet anyway, carries the worst that each has seen. So all ranks conclude the same,
//! independent of the reduction, and need not wait for the buckets.
//!
//! Finite contributions can have an infinite sum. If all of them are below [`Limits`], they cannot. If one
//! is not, as in steps of a training that diverges, the whole reduced gradient is checked before its use.

use std::ops::Range;

use kolo_comm::Rank;
use serde::{Deserialize, Serialize};

use kolo_optim::finite::are_below;
use kolo_optim::{Kind, SpanId};
use kolo_reduction::reduction::Reducer;

/// Elements that are checked before they are copied: 16 KiB, so that they are still in the first-level
/// cache.
pub(super) const RUN: usize = 4096;

/// Magnitude of the contributions of a step: the worst of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Magnitude {
    /// All results computed from them are finite, too.
    #[default]
    Ordinary,
    /// All are finite; a sum of them, or a square, may be infinite.
    Large,
    /// Some are infinite or NaN.
    NotFinite,
}

impl Magnitude {
    const ALL: [Magnitude; 3] = [Magnitude::Ordinary, Magnitude::Large, Magnitude::NotFinite];

    /// Encodes it as a byte of the agreement, of which all ranks receive the maximum.
    pub(super) fn to_byte(self) -> u8 {
        self as u8
    }

    pub(super) fn of_byte(byte: u8) -> Self {
        Self::ALL.into_iter().find(|magnitude| *magnitude as u8 == byte).unwrap_or(Magnitude::NotFinite)
    }
}

/// Upper bound of a step's contributions below which all results computed from them are finite.
pub(super) struct Limits {
    /// For a tensor that is used once in each of the job's shards.
    once: f32,
}

impl Limits {
    /// Limits of a reduction's sums over this number of shards.
    pub(super) fn new(reducer: &dyn Reducer, shards: usize) -> Self {
        Limits { once: reducer.safe_below() / shards.max(1) as f32 }
    }

    pub(super) fn of(&self, uses: u32) -> f32 {
        self.once / uses.max(1) as f32
    }
}

/// The first contribution that is not finite, in the model's order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Culprit {
    pub(super) span: usize,
    pub(super) shard: usize,
    pub(super) rank: Rank,
    pub(super) value: f32,
}

/// The elements of a reduced gradient that are not finite: the first of the parameters and the first of the
/// statistics in the model's order, with their values.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct SumSeen {
    /// The parameter's number, and the value.
    pub gradient: Option<(usize, f32)>,
    pub(super) statistic: Option<(usize, f32)>,
}

/// Observations of this rank in the current step.
#[derive(Default)]
pub(super) struct Watch {
    /// Of parameters, and of statistics.
    gradient: Magnitude,
    statistic: Magnitude,
    /// First of this rank's contributions that is not finite: tensor, shard and value.
    pub(super) first: Option<(SpanId, usize, f32)>,
}

impl Watch {
    pub(super) fn reset(&mut self) {
        *self = Watch::default();
    }

    /// The worst of the contributions to parameters, and of those to statistics.
    pub(super) fn seen(&self) -> (Magnitude, Magnitude) {
        (self.gradient, self.statistic)
    }

    /// Checks that a part of a contribution to a tensor in a shard is below `limit`.
    pub(super) fn look(&mut self, kind: Kind, id: SpanId, shard: usize, limit: f32, part: &[f32]) {
        if !are_below(part, limit) {
            self.note(kind, id, shard, part);
        }
    }

    #[cold]
    fn note(&mut self, kind: Kind, id: SpanId, shard: usize, part: &[f32]) {
        let wrong = part.iter().copied().find(|value| !value.is_finite());
        let magnitude = if wrong.is_some() { Magnitude::NotFinite } else { Magnitude::Large };
        let seen = if kind == Kind::Statistic { &mut self.statistic } else { &mut self.gradient };
        *seen = magnitude.max(*seen);
        if let Some(value) = wrong
            && self.first.is_none_or(|(first, first_shard, _)| (id, shard) < (first, first_shard))
        {
            self.first = Some((id, shard, value));
        }
    }
}

/// Splits a slice of `len` elements into the parts that are checked and copied one after another.
pub(super) fn runs(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(RUN).map(move |start| start..len.min(start + RUN))
}
