//! A few bits an element: levels of a block's norm, rounded at random so that the mean is right.
//!
//! v is sent as ‖v‖₂ and for each element a sign and a level ℓ/s of it, s = 2^(bits−1) − 1. With a =
//! |vᵢ|s/‖v‖₂ the level is ⌊a⌋, or with probability a − ⌊a⌋ one more. So E[Q(v)] = v, and E‖Q(v) − v‖² ≤
//! min(d/s², √d/s)·‖v‖² for blocks of d elements (Alistarh et al. 2017, lemma 3.1). No state is kept from
//! step to step. Each shard draws numbers of its own, so that their errors average out.

use std::ops::Range;

use kolo_comm::schedule::{Travel, WireCost};

use super::bits::{float, pack, packed_bytes, unpack};
use super::gathered::{Codec, Gathered, Kept, Place};
use super::{DENSE_BELOW, SEED, key};
use crate::error::Error;
use crate::reduction::interface::{Context, Reducer, Reduction};
use kolo_optim::Settings;
use kolo_optim::norm::sum_of_squares;
use kolo_optim::table::{Entry, Setting};
use kolo_optim::typed_settings;
use kolo_optim::vectorized;
use kolo_sampler::key::Key;

pub(in crate::reduction) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "qsgd",
    about: "a few bits an element, unbiased, rounded at random (Alistarh et al. 2017, section 3.1)",
    settings: &[
        Setting::whole("bits", 4, 2..9, "Bits an element, the sign among them"),
        Setting::whole("block", 512, 1..16_385, "Elements that have a norm in common"),
        DENSE_BELOW,
        SEED,
    ],
    make: |settings| Box::new(Qsgd::read(settings)),
};

typed_settings! {
    /// A few bits an element (`qsgd`).
    pub struct Qsgd of ENTRY: dyn Reducer {
        /// Bits an element, the sign among them.
        bits: u64,
        /// Elements that have a norm in common.
        block: u64,
        /// Tensors of fewer elements travel as they are.
        dense_below: u64,
        /// Seed of the random numbers.
        seed: u64,
    }
}

impl Reducer for Qsgd {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        Qsgd::settings(self)
    }

    fn wire_cost(&self) -> Option<WireCost> {
        Some(WireCost::lossy(Travel::Gathered, self.bits as f64 / 8.0 + 4.0 / self.block as f64))
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let Qsgd { bits, block, dense_below, seed } = *self;
        let levels = Levels { bits: bits as u32, block: block as usize, seed, codes: Vec::new() };
        Gathered::build(levels, context, dense_below)
    }
}

/// A norm for every `block` elements and `bits` bits for each of them.
struct Levels {
    bits: u32,
    block: usize,
    seed: u64,
    /// Codes of the run that is being encoded.
    codes: Vec<u16>,
}

impl Levels {
    /// s: levels besides zero, for each sign. All of them need one code fewer than there are.
    fn levels(&self) -> u16 {
        (1 << (self.bits - 1)) - 1
    }

    /// Runs of a block that have a norm in common, each with its first byte in the message.
    fn runs(&self, len: usize) -> impl Iterator<Item = (Range<usize>, usize)> + use<> {
        let (block, bits, mut start) = (self.block, self.bits, 0);
        (0..len).step_by(block).map(move |first| {
            let run = first..len.min(first + block);
            let first_byte = start;
            start += 4 + packed_bytes(run.len(), bits);
            (run, first_byte)
        })
    }
}

impl Codec for Levels {
    const KEEPS: usize = 0;

    fn bytes(&self, len: usize) -> usize {
        let bytes = |len: usize| 4 + packed_bytes(len, self.bits);
        let rest = len % self.block;
        len / self.block * bytes(self.block) + if rest > 0 { bytes(rest) } else { 0 }
    }

    fn encode(&mut self, place: Place, gradient: &mut [f32], _: &mut Kept<'_>, encoded: &mut [u8]) {
        let key = key::of_block(self.seed, place.shard.step, place.span, place.first)
            .with(place.shard.number as u64);
        let levels = self.levels();
        for (run, start) in self.runs(gradient.len()) {
            let values = &gradient[run.clone()];
            let norm = sum_of_squares(values).sqrt();
            let (head, codes) = encoded[start..][..4 + packed_bytes(run.len(), self.bits)].split_at_mut(4);
            head.copy_from_slice(&(norm as f32).to_le_bytes());
            let scale = if norm > 0.0 { f64::from(levels) / norm } else { 0.0 };
            self.codes.resize(run.len(), 0);
            let all = self.codes.iter_mut().zip(values).zip((run.start as u64..).map(|n| key.with(n)));
            vectorized(
                #[inline(always)]
                || all.for_each(|((code, value), key)| *code = rounded(*value, scale, levels, key)),
            );
            pack(&self.codes, self.bits, codes);
        }
    }

    fn decode(&self, encoded: &[u8], values: &mut [f32]) {
        let levels = self.levels();
        for (run, start) in self.runs(values.len()) {
            let (head, codes) = encoded[start..][..4 + packed_bytes(run.len(), self.bits)].split_at(4);
            let scale = float(head) / f32::from(levels);
            let mut numbers = [0; PIECE];
            let bytes = packed_bytes(PIECE, self.bits);
            for (values, codes) in values[run].chunks_mut(PIECE).zip(codes.chunks(bytes)) {
                let numbers = &mut numbers[..values.len()];
                unpack(codes, self.bits, numbers);
                vectorized(
                    #[inline(always)]
                    || {
                        let level = |code: u16| f32::from(code) - f32::from(levels);
                        values
                            .iter_mut()
                            .zip(numbers)
                            .for_each(|(value, code)| *value = level(*code) * scale);
                    },
                );
            }
        }
    }
}

/// Codes that are read at a time; whole bytes for any number of bits.
const PIECE: usize = 128;

/// Returns the code of the level that |value|·scale is rounded to: up with a probability of its fractional
/// part.
#[inline(always)]
fn rounded(value: f32, scale: f64, levels: u16, key: Key) -> u16 {
    let a = f64::from(value.abs()) * scale;
    let down = a.floor();
    let level = down + f64::from(u8::from(key.unit() < a - down));
    // NaN becomes a level of a norm that is NaN, too.
    let level = level.min(f64::from(levels)) as i32 as u16;
    if value < 0.0 { levels - level } else { levels + level }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::interface::FinishedShard;
    use kolo_optim::SpanId;

    fn values(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * 0.7 + 0.3).sin() * (1.0 + (i % 7) as f32)).collect()
    }

    fn round_trip(codec: &mut Levels, values: &[f32], step: u64) -> Vec<f32> {
        let mut bytes = vec![0; codec.bytes(values.len())];
        let shard = FinishedShard { number: 1, step, count: 1.0 };
        let place = Place { shard, span: SpanId(2), first: 0 };
        let mut nothing = Kept { of_mean: Vec::new(), samples: 1.0 };
        codec.encode(place, &mut values.to_vec(), &mut nothing, &mut bytes);
        let mut read = vec![0.0; values.len()];
        codec.decode(&bytes, &mut read);
        read
    }

    /// Lemma 3.1 of the paper: unbiased, and of bounded variance.
    #[test]
    fn the_mean_is_right_and_the_variance_is_bounded() {
        for (bits, block) in [(2, 128), (4, 512), (8, 100)] {
            let mut codec = Levels { bits, block, seed: 5, codes: Vec::new() };
            let v = values(300);
            let (mut mean, mut error, draws) = (vec![0.0f64; v.len()], 0.0, 4_000);
            for step in 0..draws {
                for ((mean, read), v) in mean.iter_mut().zip(round_trip(&mut codec, &v, step)).zip(&v) {
                    *mean += f64::from(read) / draws as f64;
                    error += f64::from(read - v).powi(2) / draws as f64;
                }
            }
            let s = f64::from(codec.levels());
            let bound: f64 = v
                .chunks(block)
                .map(|run| {
                    let d = run.len() as f64;
                    (d / (s * s)).min(d.sqrt() / s) * sum_of_squares(run)
                })
                .sum();
            assert!(error <= bound, "{bits} bits: {error} > {bound}");
            // A level's standard deviation is at most half its height.
            let off = mean.iter().zip(&v).map(|(mean, v)| (mean - f64::from(*v)).abs()).fold(0.0, f64::max);
            let height = v.chunks(block).map(|run| sum_of_squares(run).sqrt() / s).fold(0.0, f64::max);
            assert!(off < 5.0 * 0.5 * height / (draws as f64).sqrt(), "{bits} bits: {off} of {height}");
        }
    }

    #[test]
    fn zeros_stay_zeros_and_levels_are_exact() {
        let mut codec = Levels { bits: 4, block: 64, seed: 0, codes: Vec::new() };
        assert!(round_trip(&mut codec, &[0.0; 100], 3).iter().all(|value| *value == 0.0));
        // One element is its norm.
        assert_eq!(
            round_trip(&mut Levels { bits: 2, block: 1, seed: 0, codes: Vec::new() }, &[3.0, -2.5], 3),
            [3.0, -2.5]
        );
        assert_eq!(codec.bytes(100), 4 + 32 + 4 + 18, "bits and norms");
        assert!(round_trip(&mut codec, &[f32::NAN, 1.0], 3).iter().all(|value| value.is_nan()));
    }
}
