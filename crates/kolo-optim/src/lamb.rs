//! LAMB: Adam's direction, with a step length for each tensor of the learning rate times the tensor's norm.

use crate::layout::Layout;
use crate::norm::sum_of_squares;
use crate::optimizer::{Optimizer, Scope, Update, UsualRates};
use crate::rule::{Rule, optimizer};
use crate::table::{Entry, Setting};
use crate::trust_ratio::TRUST_RATIO;
use crate::vectorized::vectorized;

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "lamb",
    about: "LAMB, layer-wise adaptive steps for large batches (You et al. 2020, algorithm 2)",
    settings: &[
        Setting::number("weight_decay", 0.01, 0.0..f64::INFINITY, "Weight decay"),
        Setting::number("beta1", 0.9, 0.0..1.0, "Decay of the first moment"),
        Setting::number("beta2", 0.999, 0.0..1.0, "Decay of the second moment"),
        Setting::positive("epsilon", 1e-6, "Added to the root of the second moment"),
        TRUST_RATIO,
    ],
    make: |settings| {
        optimizer(&ENTRY, settings, |scale, settings| LambRule::new(scale, Lamb::read(settings)))
    },
};

typed_settings! {
    /// Settings of LAMB (`lamb`).
    pub struct Lamb of ENTRY: dyn Optimizer {
        /// Weight decay λ.
        weight_decay: f32,
        /// Decay β₁ of the first moment.
        beta1: f32,
        /// Decay β₂ of the second moment.
        beta2: f32,
        /// Number ε, added to the root of the second moment.
        epsilon: f32,
        /// Steps as long as each tensor's own norm.
        trust_ratio: bool,
    }
}

/// m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; u = m̂ / (√v̂ + ε) + λ·θ; θ −= η · ‖θ‖/‖u‖ · u, with m̂ = m/(1−β₁ᵗ)
/// and v̂ = v/(1−β₂ᵗ), for each tensor θ (the paper's φ is the identity).
///
/// The trust ratio ‖θ‖/‖u‖ is 1 if either norm is 0, so that a tensor of zeros can move. It is also 1 in
/// groups with `trust_ratio` false. A tensor without weight decay has λ = 0 and, as in the paper, keeps its
/// trust ratio.
///
/// Memory: m, v, and a buffer as long as the longest trained tensor.
struct LambRule {
    settings: Lamb,
    lr_scale: f64,
    /// η of the step
    rate: f64,
    /// 1/(1−β₁ᵗ)
    first_correction: f32,
    /// 1/√(1−β₂ᵗ)
    second_correction: f32,
}

impl LambRule {
    fn new(lr_scale: f64, settings: Lamb) -> Self {
        LambRule { settings, lr_scale, rate: 0.0, first_correction: 1.0, second_correction: 1.0 }
    }
}

impl Rule<2> for LambRule {
    /// u of the current tensor.
    type Scratch = Vec<f32>;

    const SCOPE: Scope = Scope::Tensor;
    const STATE: [&'static str; 2] = ["first_moment", "second_moment"];
    const USUAL_RATES: Option<UsualRates> = Some(UsualRates {
        least: 1e-6,
        most: 5e-2,
        source: "LAMB's rate is the part of its norm by which a tensor moves in a step (You et al. 2020), whose largest is \
                 0.04",
    });

    fn scratch(layout: &Layout) -> Vec<f32> {
        let trained = layout.spans().iter().filter(|span| span.spec.kind.is_trained());
        vec![0.0; trained.map(|span| span.len).max().unwrap_or(0)]
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        let correct = |beta: f32| 1.0 - libm::pow(f64::from(beta), step as f64);
        self.rate = learning_rate * self.lr_scale;
        self.first_correction = (1.0 / correct(self.settings.beta1)) as f32;
        self.second_correction = (1.0 / correct(self.settings.beta2).sqrt()) as f32;
    }

    fn update(&self, update: Update<'_>, [first, second]: [&mut [f32]; 2], direction: &mut Vec<f32>) {
        let Update { parameters, gradient, scale, decay, .. } = update;
        let Lamb { beta1, beta2, epsilon, weight_decay, trust_ratio } = self.settings;
        let (correct_m, correct_v) = (self.first_correction, self.second_correction);
        let decay = if decay { weight_decay } else { 0.0 };
        let direction = &mut direction[..parameters.len()];
        let elements = direction.iter_mut().zip(&*parameters).zip(gradient).zip(first.iter_mut().zip(second));
        vectorized(
            #[inline(always)]
            move || {
                elements.for_each(|(((u, p), g), (m, v))| {
                    let g = g * scale;
                    *m = beta1 * *m + (1.0 - beta1) * g;
                    *v = beta2 * *v + (1.0 - beta2) * g * g;
                    *u = *m * correct_m / (v.sqrt() * correct_v + epsilon) + decay * p;
                });
            },
        );
        let ratio = match trust_ratio {
            true => ratio(sum_of_squares(parameters), sum_of_squares(direction)),
            false => 1.0,
        };
        let rate = (self.rate * ratio) as f32;
        parameters.iter_mut().zip(direction).for_each(|(p, u)| *p -= rate * *u);
    }
}

/// Returns ‖θ‖/‖u‖ from the squared norms; NaN if one of them is NaN.
fn ratio(parameters: f64, direction: f64) -> f64 {
    if parameters == 0.0 || direction == 0.0 { 1.0 } else { (parameters / direction).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trust_ratio_is_1_where_a_norm_is_0() {
        assert_eq!(ratio(9.0, 4.0), 1.5);
        assert_eq!([ratio(0.0, 4.0), ratio(9.0, 0.0), ratio(0.0, 0.0)], [1.0; 3]);
    }
}
