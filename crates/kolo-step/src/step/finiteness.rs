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

use kolo_optim::finite::{are_below, are_finite};
use kolo_optim::{Kind, SpanId};
use kolo_reduction::Slice;
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

/// A value that is not finite, with the number of its tensor and of its element there.
type Found = (usize, usize, f32);

/// The elements of a reduced gradient that are not finite: the first of the parameters and the first of the
/// statistics in the model's order, whatever the cuts of buckets and their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SumSeen {
    gradient: Option<Found>,
    statistic: Option<Found>,
}

impl SumSeen {
    /// Checks the values of a slice.
    pub(super) fn see(&mut self, kind: Kind, slice: &Slice, values: &[f32]) {
        if are_finite(values) {
            return;
        }
        let seen = if kind == Kind::Statistic { &mut self.statistic } else { &mut self.gradient };
        let wrong = values.iter().position(|value| !value.is_finite());
        let found = wrong.map(|index| (slice.span.0, slice.elements.start + index, values[index]));
        *seen = found.into_iter().chain(*seen).min_by_key(|(span, element, _)| (*span, *element));
    }

    /// Combines what several ranks have seen, each in its part.
    pub fn of_parts(parts: impl IntoIterator<Item = SumSeen>) -> Self {
        let first = |a: Option<Found>, b: Option<Found>| {
            a.into_iter().chain(b).min_by_key(|(span, element, _)| (*span, *element))
        };
        parts.into_iter().fold(SumSeen::default(), |all, part| SumSeen {
            gradient: first(all.gradient, part.gradient),
            statistic: first(all.statistic, part.statistic),
        })
    }

    /// Returns true if a gradient is not finite.
    pub fn has_gradient(&self) -> bool {
        self.gradient.is_some()
    }

    /// The tensor and the value of the first element that is not finite.
    pub(super) fn first(&self) -> Option<(SpanId, f32)> {
        let both = self.gradient.into_iter().chain(self.statistic);
        both.min_by_key(|(span, ..)| *span).map(|(span, _, value)| (SpanId(span), value))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_that_is_not_finite_is_found_in_any_order() {
        let kind = Kind::Parameter { decay: true };
        let slice = |span, start| Slice { span: SpanId(span), elements: start..start + 4, offset: 0 };
        let slices = [
            (kind, slice(1, 0), [0.0; 4]),
            (kind, slice(1, 4), [0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY]),
            (kind, slice(1, 8), [f32::NEG_INFINITY; 4]),
            (Kind::Statistic, slice(0, 0), [0.0, f32::NEG_INFINITY, 0.0, 0.0]),
            (kind, slice(2, 0), [f32::INFINITY; 4]),
        ];
        for first in 0..slices.len() {
            let mut seen = SumSeen::default();
            let (end, start) = slices.split_at(first);
            for (kind, slice, values) in start.iter().chain(end.iter().rev()) {
                seen.see(*kind, slice, values);
            }
            let (gradient, statistic) = (Some((1, 6, f32::INFINITY)), Some((0, 1, f32::NEG_INFINITY)));
            assert_eq!(seen, SumSeen { gradient, statistic });
            assert_eq!(seen.first(), Some((SpanId(0), f32::NEG_INFINITY)));
            let parts = slices.iter().map(|(kind, slice, values)| {
                let mut part = SumSeen::default();
                part.see(*kind, slice, values);
                part
            });
            assert_eq!(SumSeen::of_parts(parts), seen);
        }
    }
}
