//! The common part of Adam and AdamW: two moments, their corrections, and one pass over the elements.
//!
//! The two differ in the place of weight decay ([`WeightDecay`]). Muon uses this pass for tensors that are
//! not matrices.

use crate::optimizer::{Update, UsualRates};
use crate::rule::Rule;
use crate::table::Setting;
use crate::vectorized::vectorized;

/// Settings of the optimizers with Adam's moments.
pub(crate) const WEIGHT_DECAY: Setting =
    Setting::number("weight_decay", 0.0, 0.0..f64::INFINITY, "Weight decay");
pub(crate) const BETA1: Setting = Setting::number("beta1", 0.9, 0.0..1.0, "Decay of the first moment");
pub(crate) const BETA2: Setting = Setting::number("beta2", 0.999, 0.0..1.0, "Decay of the second moment");
pub(crate) const FREEZE_AFTER: Setting = Setting::whole(
    "freeze_after",
    0,
    0..1 << 53,
    "Steps after which the second moment stays as it is; 0: it never does",
);
pub(crate) const EPSILON: Setting =
    Setting::positive("epsilon", 1e-8, "Added to the root of the second moment");

#[derive(Clone, Copy)]
pub(crate) struct AdamSettings {
    /// λ
    pub(crate) weight_decay: f32,
    /// β₁
    pub(crate) beta1: f32,
    /// β₂
    pub(crate) beta2: f32,
    /// ε
    pub(crate) epsilon: f32,
    /// Steps after which v stays constant (Tang et al. 2021, "1-bit Adam", algorithm 1); 0 means never.
    pub(crate) freeze_after: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum WeightDecay {
    /// In the gradient, g + λ·θ, and thus in the moments: the L2 penalty of Adam.
    Coupled,
    /// In the parameter, θ −= η·λ·θ: AdamW.
    Decoupled,
}

/// Rule for the tensors of one group: m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; θ −= η·m̂ / (√v̂ + ε), with m̂ =
/// m/(1−β₁ᵗ) and v̂ = v/(1−β₂ᵗ).
pub(crate) struct AdamRule {
    settings: AdamSettings,
    lr_scale: f64,
    weight_decay: WeightDecay,
    /// 1 − η·λ
    decay: f32,
    /// η/(1−β₁ᵗ)
    rate: f32,
    /// 1/√(1−β₂ᵗ)
    correction: f32,
    is_frozen: bool,
}

impl AdamRule {
    pub(crate) fn new(weight_decay: WeightDecay, lr_scale: f64, settings: AdamSettings) -> Self {
        let (decay, rate, correction, is_frozen) = (1.0, 0.0, 1.0, false);
        AdamRule { settings, lr_scale, weight_decay, decay, rate, correction, is_frozen }
    }

    /// Runs the pass over the elements. `seen` maps gradient and parameter to the gradient that the moments
    /// see; `decayed` maps a parameter to its value before the step. Both kinds of weight decay thus share
    /// one loop.
    #[inline(always)]
    fn pass(
        &self,
        parameters: &mut [f32],
        gradient: &[f32],
        [first, second]: [&mut [f32]; 2],
        seen: impl Fn(f32, f32) -> f32,
        decayed: impl Fn(f32) -> f32,
    ) {
        let AdamSettings { beta1, beta2, epsilon, .. } = self.settings;
        let (rate, correction, is_frozen) = (self.rate, self.correction, self.is_frozen);
        // The closure owns all it reads: through a captured reference the compiler could not rule out
        // aliasing.
        vectorized(
            #[inline(always)]
            move || {
                let elements = parameters.iter_mut().zip(gradient).zip(first).zip(second);
                if is_frozen {
                    elements.for_each(|(((p, g), m), v)| {
                        *m = beta1 * *m + (1.0 - beta1) * seen(*g, *p);
                        *p = decayed(*p) - rate * *m / (v.sqrt() * correction + epsilon);
                    });
                } else {
                    elements.for_each(|(((p, g), m), v)| {
                        let g = seen(*g, *p);
                        *m = beta1 * *m + (1.0 - beta1) * g;
                        *v = beta2 * *v + (1.0 - beta2) * g * g;
                        *p = decayed(*p) - rate * *m / (v.sqrt() * correction + epsilon);
                    });
                }
            },
        );
    }
}

impl Rule<2> for AdamRule {
    type Scratch = ();

    const STATE: [&'static str; 2] = ["first_moment", "second_moment"];
    const USUAL_RATES: Option<UsualRates> = Some(UsualRates {
        least: 1e-7,
        most: 2e-2,
        source: "A step of Adam moves each weight by up to about the rate, however small its gradient (Kingma & Ba 2015, \
                 section 2.1); 0.001 is their value, and transformers take less",
    });

    fn begin(&mut self, step: u64, learning_rate: f64) {
        let AdamSettings { beta1, beta2, weight_decay, freeze_after, .. } = self.settings;
        self.is_frozen = freeze_after > 0 && step > freeze_after;
        let seen = if self.is_frozen { freeze_after } else { step };
        let rate = learning_rate * self.lr_scale;
        let correct = |beta: f32, step: u64| 1.0 - libm::pow(f64::from(beta), step as f64);
        self.decay = (1.0 - rate * f64::from(weight_decay)) as f32;
        self.rate = (rate / correct(beta1, step)) as f32;
        self.correction = (1.0 / correct(beta2, seen).sqrt()) as f32;
    }

    fn update(&self, update: Update<'_>, moments: [&mut [f32]; 2], (): &mut ()) {
        let Update { parameters, gradient, scale, decay, .. } = update;
        match self.weight_decay {
            WeightDecay::Coupled => {
                let penalty = if decay { self.settings.weight_decay } else { 0.0 };
                self.pass(parameters, gradient, moments, move |g, p| g * scale + penalty * p, |p| p);
            }
            WeightDecay::Decoupled => {
                let decay = if decay { self.decay } else { 1.0 };
                self.pass(parameters, gradient, moments, move |g, _| g * scale, move |p| p * decay);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_any_width_give_the_bits_of_one_element_at_a_time() {
        let settings =
            AdamSettings { weight_decay: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, freeze_after: 0 };
        let value = |n: usize, by: f32| (n as f32 * 0.37).sin() * by;
        for weight_decay in [WeightDecay::Coupled, WeightDecay::Decoupled] {
            let mut rule = AdamRule::new(weight_decay, 1.0, settings);
            rule.begin(3, 0.01);
            let step = |p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]| {
                let range = 0..p.len();
                let update = Update { range, parameters: p, gradient: g, scale: 0.25, decay: true, group: 0 };
                rule.update(update, [m, v], &mut ());
            };
            for len in 1..70 {
                let of = |by: f32| (0..len).map(|n| value(n, by)).collect::<Vec<f32>>();
                let (mut p, g, mut m, mut v) = (of(1.0), of(3.0), of(0.1), of(0.2));
                v.iter_mut().for_each(|v| *v = v.abs());
                let (mut one_p, mut one_m, mut one_v) = (p.clone(), m.clone(), v.clone());
                step(&mut p, &g, &mut m, &mut v);
                for n in 0..len {
                    let here = n..n + 1;
                    let (p, m) = (&mut one_p[here.clone()], &mut one_m[here.clone()]);
                    step(p, &g[here.clone()], m, &mut one_v[here]);
                }
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!([p, m, v].map(|x| bits(&x)), [one_p, one_m, one_v].map(|x| bits(&x)), "{len}");
            }
        }
    }
}
