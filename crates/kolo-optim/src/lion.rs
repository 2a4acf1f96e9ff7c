//! Lion: steps along the sign of a momentum.

use crate::optimizer::{Optimizer, Update, UsualRates};
use crate::rule::{Rule, optimizer};
use crate::table::{Entry, Setting};

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "lion",
    about: "Lion, the sign of a momentum with decoupled weight decay (Chen et al. 2023, algorithm 2)",
    settings: &[
        Setting::number("weight_decay", 0.0, 0.0..f64::INFINITY, "Weight decay"),
        Setting::number("beta1", 0.9, 0.0..1.0, "Share of the momentum in a step"),
        Setting::number("beta2", 0.99, 0.0..1.0, "Decay of the momentum"),
    ],
    make: |settings| {
        optimizer(&ENTRY, settings, |scale, settings| LionRule::new(scale, Lion::read(settings)))
    },
};

typed_settings! {
    /// Settings of Lion (`lion`).
    pub struct Lion of ENTRY: dyn Optimizer {
        /// Weight decay λ.
        weight_decay: f32,
        /// Share β₁ of the momentum in a step.
        beta1: f32,
        /// Decay β₂ of the momentum.
        beta2: f32,
    }
}

/// c = β₁m + (1−β₁)g; θ −= η·(sign(c) + λ·θ); m = β₂m + (1−β₂)g, where sign(0) is 0.
///
/// All elements move by η. The paper's learning rates are therefore 3 to 10 times smaller than AdamW's, and
/// its weight decay is larger by the same factor.
struct LionRule {
    settings: Lion,
    lr_scale: f64,
    /// η of the step
    rate: f32,
    /// 1 − η·λ
    decay: f32,
}

impl LionRule {
    fn new(lr_scale: f64, settings: Lion) -> Self {
        LionRule { settings, lr_scale, rate: 0.0, decay: 1.0 }
    }
}

impl Rule<1> for LionRule {
    type Scratch = ();

    const STATE: [&'static str; 1] = ["momentum"];
    const USUAL_RATES: Option<UsualRates> = Some(UsualRates {
        least: 1e-8,
        most: 5e-3,
        source: "A step of Lion moves each weight by the rate itself; it takes 3 to 10 times less than AdamW (Chen et al. \
                 2023, section 5)",
    });

    fn begin(&mut self, _: u64, learning_rate: f64) {
        let rate = learning_rate * self.lr_scale;
        self.rate = rate as f32;
        self.decay = (1.0 - rate * f64::from(self.settings.weight_decay)) as f32;
    }

    fn update(&self, update: Update<'_>, [momentum]: [&mut [f32]; 1], (): &mut ()) {
        let Update { parameters, gradient, scale, decay, .. } = update;
        let Lion { beta1, beta2, .. } = self.settings;
        let (rate, decay) = (self.rate, if decay { self.decay } else { 1.0 });
        for ((p, g), m) in parameters.iter_mut().zip(gradient).zip(momentum) {
            let g = g * scale;
            *p = *p * decay - rate * sign(beta1 * *m + (1.0 - beta1) * g);
            *m = beta2 * *m + (1.0 - beta2) * g;
        }
    }
}

/// Returns -1, 0 or 1, or NaN for NaN, which would otherwise hide in the momentum. `f32::signum` of 0 is 1.
#[inline(always)]
fn sign(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!([3.0, 1e-40, 0.0, -0.0, -1e-40, -7.0].map(sign), [1.0, 1.0, 0.0, 0.0, -1.0, -1.0]);
        assert!(sign(f32::NAN).is_nan());
    }
}
