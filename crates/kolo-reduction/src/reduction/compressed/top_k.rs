//! The largest elements of each block, with all others carried to the next step.
//!
//! A shard has p = g + C·e to send ([`feedback`](super::feedback)). It sends the k elements of the largest
//! magnitude of each block of [`BLOCK`](crate::BLOCK) elements, and keeps the others: ‖C·e‖² ≤ (1 −
//! k/d)·‖p‖². On the wire six bytes for each of them: its place in its block, and its value.

use kolo_comm::schedule::{Travel, WireCost};

use super::DENSE_BELOW;
use super::bits::float;
use super::feedback::{keep, recall};
use super::gathered::{Codec, Gathered, Kept, Place};
use super::selection::{count, largest};
use crate::error::Error;
use crate::reduction::interface::{Context, Reducer, Reduction};
use kolo_optim::Settings;
use kolo_optim::table::{Entry, Setting};
use kolo_optim::typed_settings;

/// Share of the elements that is sent.
pub(super) const DENSITY: Setting =
    Setting::number("density", 0.01, 1e-6..1.000_001, "Share of the elements that travel in a step");

pub(in crate::reduction) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "top-k",
    about: "the largest elements with error feedback for each shard (Stich et al. 2018, algorithm 1)",
    settings: &[DENSITY, DENSE_BELOW],
    make: |settings| Box::new(TopK::read(settings)),
};

typed_settings! {
    /// The largest elements (`top-k`).
    pub struct TopK of ENTRY: dyn Reducer {
        /// Share of the elements that is sent in a step.
        density: f64,
        /// Tensors of fewer elements travel as they are.
        dense_below: u64,
    }
}

impl Reducer for TopK {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        TopK::settings(self)
    }

    fn wire_cost(&self) -> Option<WireCost> {
        Some(WireCost::lossy(Travel::Gathered, 6.0 * self.density))
    }

    fn shard_state(&self) -> &'static [&'static str] {
        &["mean_residual"]
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let TopK { density, dense_below } = *self;
        let codec = Largest { density: density.min(1.0), chosen: Vec::new() };
        Gathered::build(codec, context, dense_below)
    }
}

/// Places and values of the largest elements.
struct Largest {
    density: f64,
    chosen: Vec<u16>,
}

impl Codec for Largest {
    const KEEPS: usize = 1;

    fn bytes(&self, len: usize) -> usize {
        sparse_bytes(count(len, self.density))
    }

    fn encode(&mut self, _: Place, gradient: &mut [f32], kept: &mut Kept<'_>, encoded: &mut [u8]) {
        let (residual, samples) = (&mut *kept.of_mean[0], kept.samples);
        recall(gradient, residual, samples);
        largest(gradient, count(gradient.len(), self.density), &mut self.chosen);
        encode_sparse(&self.chosen, gradient, encoded);
        self.chosen.iter().for_each(|i| gradient[usize::from(*i)] = 0.0);
        keep(residual, gradient, samples);
    }

    fn decode(&self, encoded: &[u8], values: &mut [f32]) {
        decode_sparse(encoded, values);
    }
}

/// Bytes of `count` places and values.
pub(super) fn sparse_bytes(count: usize) -> usize {
    6 * count
}

/// Encodes these elements: all places, then all values.
pub(super) fn encode_sparse(chosen: &[u16], values: &[f32], encoded: &mut [u8]) {
    let (places, numbers) = encoded.split_at_mut(2 * chosen.len());
    for ((place, number), i) in places.chunks_exact_mut(2).zip(numbers.chunks_exact_mut(4)).zip(chosen) {
        place.copy_from_slice(&i.to_le_bytes());
        number.copy_from_slice(&values[usize::from(*i)].to_le_bytes());
    }
}

/// Decodes the elements of [`say`]; all other values are zero.
pub(super) fn decode_sparse(encoded: &[u8], values: &mut [f32]) {
    values.fill(0.0);
    let (places, numbers) = encoded.split_at(encoded.len() / 3);
    for (place, number) in places.chunks_exact(2).zip(numbers.chunks_exact(4)) {
        // No rank of the same version sends a place beyond the block.
        if let Some(value) = values.get_mut(usize::from(u16::from_le_bytes([place[0], place[1]]))) {
            *value = float(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::interface::FinishedShard;
    use kolo_optim::SpanId;
    use kolo_optim::norm::sum_of_squares;

    #[test]
    fn sent_and_kept_values_are_all_and_the_rest_is_small() {
        let gradient: Vec<f32> = (0..500).map(|i| (i as f32 * 0.37).sin()).collect();
        for density in [0.01, 0.3, 1.0] {
            let mut codec = Largest { density, chosen: Vec::new() };
            let (mut encoded, mut decoded) = (vec![0; codec.bytes(500)], vec![0.0; 500]);
            let mut residual: Vec<f32> = (0..500).map(|i| (i as f32 * 0.11).cos() * 0.1).collect();
            let p: Vec<f32> = residual.iter().zip(&gradient).map(|(e, g)| e + g).collect();
            let shard = FinishedShard { number: 0, step: 0, count: 1.0 };
            let place = Place { shard, span: SpanId(0), first: 0 };
            let mut kept = Kept { of_mean: vec![&mut residual], samples: 1.0 };
            codec.encode(place, &mut gradient.clone(), &mut kept, &mut encoded);
            codec.decode(&encoded, &mut decoded);
            assert!(p.iter().zip(&residual).zip(&decoded).all(|((p, e), sent)| *p == e + sent));
            let bound = (1.0 - density) * sum_of_squares(&p);
            assert!(sum_of_squares(&residual) <= bound, "{density}");
        }
    }
}
