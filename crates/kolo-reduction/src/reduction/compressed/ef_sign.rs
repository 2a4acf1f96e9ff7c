//! One bit an element, with the error carried to the next step.
//!
//! Every shard has a residual e ([`feedback`](super::feedback)). In each step its p = g + C·e is to be sent,
//! it sends Δ = (‖p‖₁/d)·sign(p), and (p − Δ)/C is its residual of the next step; the optimizer sees ΣΔ over
//! all shards. So nothing is lost, only late: the applied values, summed over steps, and the residuals are
//! together the sum of the means of the gradients.
//!
//! Residuals belong to shards, not to ranks, and the scale ‖p‖₁/d to blocks of [`BLOCK`](crate::BLOCK)
//! elements of a tensor.

use kolo_comm::schedule::{Travel, WireCost};

use super::DENSE_BELOW;
use super::bits::float;
use super::feedback::{keep, recall};
use super::gathered::{Codec, Gathered, Kept, Place};
use crate::buckets::BLOCK;
use crate::error::Error;
use crate::reduction::interface::{Context, Reducer, Reduction};
use kolo_optim::Settings;
use kolo_optim::table::Entry;
use kolo_optim::typed_settings;
use kolo_optim::vectorized;

pub(in crate::reduction) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "ef-sign",
    about: "1 bit an element with error feedback for each shard (Karimireddy et al. 2019, algorithm 2)",
    settings: &[DENSE_BELOW],
    make: |settings| Box::new(EfSign::read(settings)),
};

typed_settings! {
    /// One bit an element (`ef-sign`).
    pub struct EfSign of ENTRY: dyn Reducer {
        /// Tensors of fewer elements travel as they are.
        dense_below: u64,
    }
}

impl Reducer for EfSign {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        EfSign::settings(self)
    }

    fn wire_cost(&self) -> Option<WireCost> {
        Some(WireCost::lossy(Travel::Gathered, 1.0 / 8.0 + 4.0 / BLOCK as f64))
    }

    fn shard_state(&self) -> &'static [&'static str] {
        &["mean_residual"]
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        Gathered::build(Signs, context, self.dense_below)
    }
}

/// A scale and a bit for each element.
struct Signs;

impl Codec for Signs {
    const KEEPS: usize = 1;

    fn bytes(&self, len: usize) -> usize {
        sign_bytes(len)
    }

    fn encode(&mut self, _: Place, gradient: &mut [f32], kept: &mut Kept<'_>, encoded: &mut [u8]) {
        let (residual, samples) = (&mut *kept.of_mean[0], kept.samples);
        recall(gradient, residual, samples);
        encode_signs(gradient, encoded);
        keep(residual, gradient, samples);
    }

    fn decode(&self, encoded: &[u8], values: &mut [f32]) {
        decode_signs(encoded, values);
    }
}

/// Bytes of an encoded block of `len` elements.
pub(super) fn sign_bytes(len: usize) -> usize {
    4 + len.div_ceil(8)
}

/// Encodes `values` as one bit each and a scale; the error stays in `values`.
pub(super) fn encode_signs(values: &mut [f32], encoded: &mut [u8]) {
    let scale = (sum_of_magnitudes(values) / values.len() as f64) as f32;
    let (head, bits) = encoded.split_at_mut(4);
    head.copy_from_slice(&scale.to_le_bytes());
    vectorized(
        #[inline(always)]
        || {
            let (whole, rest) = values.as_chunks::<8>();
            bits.iter_mut().zip(whole).for_each(|(bits, values)| *bits = signs(values));
            bits[whole.len()..].fill(signs(rest));
            values.iter_mut().for_each(|value| *value -= if *value >= 0.0 { scale } else { -scale });
        },
    );
}

/// Decodes a shard's block.
pub(super) fn decode_signs(encoded: &[u8], values: &mut [f32]) {
    let (scale, bits) = encoded.split_at(4);
    let scale = float(scale);
    vectorized(
        #[inline(always)]
        || {
            let (whole, rest) = values.as_chunks_mut::<8>();
            let last = bits[whole.len()..].first();
            whole.iter_mut().zip(bits).for_each(|(values, bits)| set_signs(values, *bits, scale));
            last.into_iter().for_each(|bits| set_signs(rest, *bits, scale));
        },
    );
}

/// Returns a bit for each of up to eight values: 1 if it is not negative.
#[inline(always)]
fn signs(values: &[f32]) -> u8 {
    let bit = |(place, value): (usize, &f32)| u8::from(*value >= 0.0) << place;
    values.iter().enumerate().map(bit).fold(0, |bits, bit| bits | bit)
}

#[inline(always)]
fn set_signs(values: &mut [f32], bits: u8, scale: f32) {
    let values = values.iter_mut().enumerate();
    values.for_each(|(place, value)| *value = if bits & 1 << place != 0 { scale } else { -scale });
}

/// Sums magnitudes in double precision, as eight running sums for vector instructions. Their number is
/// fixed, so the bits are, too.
fn sum_of_magnitudes(values: &[f32]) -> f64 {
    let mut chunks = values.chunks_exact(8);
    let sums = vectorized(
        #[inline(always)]
        || {
            let mut sums = [0.0f64; 8];
            for chunk in &mut chunks {
                sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f64::from(x.abs()));
            }
            sums
        },
    );
    let rest: f64 = chunks.remainder().iter().map(|x| f64::from(x.abs())).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The algorithm in double precision, straight from the paper.
    #[test]
    fn sends_the_sign_and_the_mean_magnitude_and_keeps_the_rest() {
        for len in [1usize, 7, 8, 9, 300] {
            let before: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7 + 0.3).sin()).collect();
            let scale = before.iter().map(|p| f64::from(p.abs())).sum::<f64>() / len as f64;
            let (mut kept, mut wire) = (before.clone(), vec![0xff; 4 + len.div_ceil(8)]);
            encode_signs(&mut kept, &mut wire);
            let mut decoded = vec![0.0; len];
            decode_signs(&wire, &mut decoded);
            for ((p, kept), decoded) in before.iter().zip(&kept).zip(&decoded) {
                assert!(
                    (f64::from(*decoded) - f64::from(p.signum()) * scale).abs() < 1e-7,
                    "{len}: {p} as {decoded}"
                );
                assert!((decoded + kept - p).abs() < 1e-6, "{len}: {decoded} + {kept} is not {p}");
            }
        }
    }

    #[test]
    fn what_is_not_a_number_is_not_hidden() {
        let (mut values, mut wire) = ([1.0, f32::NAN, -2.0], [0; 5]);
        encode_signs(&mut values, &mut wire);
        let mut decoded = [0.0; 3];
        decode_signs(&wire, &mut decoded);
        assert!(decoded.iter().all(|value| value.is_nan()));
    }
}
