//! Deep gradient compression: sends the largest elements of a gradient that is accumulated with momentum.
//!
//! Each shard keeps a velocity u and an accumulated gradient v, both as parts of the mean over the C samples
//! of a step ([`feedback`](super::feedback)): u = m·u + g/C; v += u. It sends the largest elements of C·v
//! and clears u and v there (momentum factor masking). So momentum is that of the gradients, though few of
//! them are applied in each step, and the optimizer must have none of its own. The first steps send more: a
//! quarter of the elements, then a quarter of that, and so on.
//!
//! The local gradient is clipped to clip_norm/√S, S shards (section 3.2). Kolo clips by blocks, each to its
//! part of that, √(d/D) for d of the model's D elements, because other blocks may be in other buckets.

use kolo_comm::schedule::{Travel, WireCost};

use super::feedback::keep_more;
use super::gathered::{Codec, Gathered, Kept, Place};
use super::selection::{count, largest};
use super::top_k::{decode_sparse, encode_sparse, sparse_bytes};
use crate::error::Error;
use crate::reduction::interface::{Context, Reducer, Reduction};
use kolo_optim::Settings;
use kolo_optim::norm::sum_of_squares;
use kolo_optim::table::{Entry, Setting};
use kolo_optim::typed_settings;

pub(in crate::reduction) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "dgc",
    about: "deep gradient compression, with momentum of its own for each shard (Lin et al. 2018, algorithm 4)",
    settings: &[
        Setting::number("density", 0.001, 1e-6..1.000_001, "Share of the elements that travel in a step"),
        Setting::number("momentum", 0.9, 0.0..1.0, "Momentum, in place of the optimizer's"),
        Setting::whole("warmup_steps", 0, 0..u64::MAX, "Steps over which the density falls from a quarter"),
        Setting::number(
            "clip_norm",
            0.0,
            0.0..f64::INFINITY,
            "Clip gradients to this norm, block by block; 0: do not",
        ),
    ],
    make: |settings| Box::new(Dgc::read(settings)),
};

typed_settings! {
    /// Deep gradient compression (`dgc`).
    pub struct Dgc of ENTRY: dyn Reducer {
        /// Share of the elements that is sent in a step.
        density: f64,
        /// Momentum, in place of the optimizer's.
        momentum: f32,
        /// Steps over which the density falls from a quarter.
        warmup_steps: u64,
        /// Norm to which gradients are clipped; 0: they are not.
        clip_norm: f64,
    }
}

impl Dgc {
    /// Density of a step, from 0: in four stages of the warm-up 1/4, 1/16, 1/64 and 1/256, if that is more
    /// than the density afterwards.
    fn density_of(&self, step: u64) -> f64 {
        let stage = (4.0 * step as f64 / self.warmup_steps as f64).floor();
        let ramp = if stage < 4.0 { libm::pow(0.25, stage + 1.0) } else { 0.0 };
        ramp.max(self.density).min(1.0)
    }
}

impl Reducer for Dgc {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        Dgc::settings(self)
    }

    fn wire_cost(&self) -> Option<WireCost> {
        Some(WireCost::lossy(Travel::Gathered, 6.0 * self.density))
    }

    fn shard_state(&self) -> &'static [&'static str] {
        &["mean_velocity", "mean_accumulated"]
    }

    fn check(&self, name: &str, settings: &Settings) -> Result<(), String> {
        if settings.get("beta1").is_some() {
            return Err(format!("`dgc` corrects the momentum of SGD, not the moments of {name}; take `sgd`"));
        }
        match settings.get("momentum") {
            Some(momentum) if momentum != 0.0.into() => {
                Err(format!("`dgc` has a momentum of its own; set that of {name} to 0"))
            }
            _ => Ok(()),
        }
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let shards: usize = context.assignment.shares.iter().sum();
        let share = self.clip_norm / (shards as f64 * context.layout.len() as f64).sqrt();
        let clip = (self.clip_norm > 0.0).then_some(share);
        let codec = Accumulated { settings: *self, clip, density: 1.0, chosen: Vec::new() };
        Gathered::build(codec, context, 0)
    }
}

/// Places and values of the largest elements of v.
struct Accumulated {
    settings: Dgc,
    /// Limit of the norm of a block of one element; that of a block of d elements is √d as large.
    clip: Option<f64>,
    /// Density of the current step.
    density: f64,
    chosen: Vec<u16>,
}

impl Accumulated {
    /// Returns the factor by which clipping multiplies a block's gradient.
    fn clipped(&self, place: Place, gradient: &[f32]) -> f32 {
        // The gradient is the sum over the shard's samples; the limit is that of their mean.
        self.clip.map_or(1.0, |clip| {
            let limit = clip * (gradient.len() as f64).sqrt() * place.shard.count;
            (limit / sum_of_squares(gradient).sqrt()).min(1.0) as f32
        })
    }
}

impl Codec for Accumulated {
    const KEEPS: usize = 2;

    fn begin(&mut self, step: u64) {
        self.density = self.settings.density_of(step);
    }

    fn bytes(&self, len: usize) -> usize {
        sparse_bytes(count(len, self.density))
    }

    fn encode(&mut self, place: Place, gradient: &mut [f32], kept: &mut Kept<'_>, encoded: &mut [u8]) {
        let (scale, samples, momentum) =
            (self.clipped(place, gradient), kept.samples, self.settings.momentum);
        let [velocity, accumulated] = &mut kept.of_mean[..] else { return };
        for ((u, v), g) in velocity.iter_mut().zip(accumulated.iter_mut()).zip(&mut *gradient) {
            *u = momentum * *u + *g * scale / samples;
            *v += *u;
            *g = *v * samples;
        }
        largest(gradient, count(gradient.len(), self.density), &mut self.chosen);
        encode_sparse(&self.chosen, gradient, encoded);
        for i in &self.chosen {
            (velocity[usize::from(*i)], accumulated[usize::from(*i)]) = (0.0, 0.0);
        }
    }

    fn keep_late(&self, place: Place, gradient: &mut [f32], kept: &mut Kept<'_>) {
        let scale = self.clipped(place, gradient);
        gradient.iter_mut().for_each(|g| *g *= scale);
        // u is linear in the gradients, so a part of one may come later.
        let samples = kept.samples;
        kept.of_mean.iter_mut().for_each(|kept| keep_more(kept, gradient, samples));
    }

    fn decode(&self, encoded: &[u8], values: &mut [f32]) {
        decode_sparse(encoded, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::interface::FinishedShard;
    use kolo_optim::SpanId;

    fn codec(settings: Dgc, clip: Option<f64>) -> Accumulated {
        Accumulated { settings, clip, density: 1.0, chosen: Vec::new() }
    }

    const SETTINGS: Dgc = Dgc { density: 0.05, momentum: 0.9, warmup_steps: 0, clip_norm: 0.0 };

    /// The sum of the sent and the still accumulated gradients is the momentum of all gradients, minus the
    /// part that masking took from the velocity.
    #[test]
    fn nothing_that_was_accumulated_is_lost() {
        let mut codec = codec(SETTINGS, None);
        let (mut u, mut v) = (vec![0.0f32; 200], vec![0.0f32; 200]);
        let (mut velocity, mut all) = (vec![0.0f64; 200], vec![0.0f64; 200]);
        let mut applied = vec![0.0f64; 200];
        for step in 0..30 {
            codec.begin(step);
            let gradient: Vec<f32> = (0..200).map(|i| ((step * 31 + i) as f32 * 0.7).sin()).collect();
            let mut encoded = vec![0; codec.bytes(200)];
            let shard = FinishedShard { number: 0, step, count: 1.0 };
            let place = Place { shard, span: SpanId(0), first: 0 };
            let mut kept = Kept { of_mean: vec![&mut u, &mut v], samples: 1.0 };
            codec.encode(place, &mut gradient.clone(), &mut kept, &mut encoded);
            let mut decoded = vec![0.0; 200];
            codec.decode(&encoded, &mut decoded);
            for i in 0..200 {
                velocity[i] = 0.9 * velocity[i] + f64::from(gradient[i]);
                all[i] += velocity[i];
                applied[i] += f64::from(decoded[i]);
                if decoded[i] != 0.0 {
                    velocity[i] = 0.0;
                }
            }
        }
        for i in 0..200 {
            assert!((applied[i] + f64::from(v[i]) - all[i]).abs() < 1e-4, "{i}");
        }
        assert!(applied.iter().filter(|applied| **applied != 0.0).count() > 50);
    }

    #[test]
    fn the_density_falls_by_quarters_and_long_gradients_are_clipped() {
        let settings = Dgc { density: 0.001, warmup_steps: 40, ..SETTINGS };
        let densities = [0, 9, 10, 20, 30, 39, 40, 1_000].map(|step| settings.density_of(step));
        let quarter = |n| 0.25f64.powi(n);
        assert_eq!(
            densities,
            [quarter(1), quarter(1), quarter(2), quarter(3), quarter(4), quarter(4), 0.001, 0.001]
        );
        assert_eq!(SETTINGS.density_of(0), 0.05);
        // A mean over two samples of norm 20 over four elements, whose limit is 2·√4.
        let mut codec = codec(Dgc { density: 1.0, ..SETTINGS }, Some(2.0));
        let (mut u, mut v, mut encoded) = (vec![0.0; 4], vec![0.0; 4], vec![0; sparse_bytes(4)]);
        codec.begin(0);
        let shard = FinishedShard { number: 0, step: 0, count: 2.0 };
        let place = Place { shard, span: SpanId(0), first: 0 };
        let mut kept = Kept { of_mean: vec![&mut u, &mut v], samples: 2.0 };
        codec.encode(place, &mut [20.0; 4], &mut kept, &mut encoded);
        let mut decoded = vec![0.0; 4];
        codec.decode(&encoded, &mut decoded);
        assert_eq!(decoded, [4.0; 4]);
    }
}
