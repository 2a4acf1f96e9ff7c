//! LARS: SGD with momentum and, for each tensor, a rate in proportion to the ratio of its norm to its
//! gradient's norm.

use crate::norm::sum_of_squares;
use crate::optimizer::{Optimizer, Scope, Update, UsualRates};
use crate::rule::{Rule, optimizer};
use crate::table::{Entry, Setting};
use crate::trust_ratio::TRUST_RATIO;

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "lars",
    about: "LARS, layer-wise adaptive rates for large batches (You, Gitman & Ginsburg 2017, algorithm 1)",
    settings: &[
        Setting::number("weight_decay", 5e-4, 0.0..f64::INFINITY, "Weight decay"),
        Setting::number("momentum", 0.9, 0.0..1.0, "Momentum; 0 is none"),
        Setting::positive(
            "trust_coefficient",
            1e-3,
            "Share of a tensor's norm that a step of rate 1 may change",
        ),
        TRUST_RATIO,
    ],
    make: |settings| {
        optimizer(&ENTRY, settings, |scale, settings| LarsRule::new(scale, Lars::read(settings)))
    },
};

typed_settings! {
    /// Settings of LARS (`lars`).
    pub struct Lars of ENTRY: dyn Optimizer {
        /// Weight decay, β of the paper.
        weight_decay: f32,
        /// Momentum, m of the paper; 0 is none.
        momentum: f32,
        /// Share of a tensor's norm that a step of rate 1 may change, η of the paper.
        trust_coefficient: f64,
        /// Steps as long as each tensor's own norm.
        trust_ratio: bool,
    }
}

/// λ = η·‖w‖ / (‖g‖ + β·‖w‖); v = m·v + γ·λ·(g + β·w); w −= v, for each tensor w with the rate γ of the step.
/// As in the paper, the rate is inside the velocity, so that a change of rate takes effect gradually.
///
/// λ is 1 if w or g has norm 0, so that a tensor of zeros can move. It is also 1 in groups with `trust_ratio`
/// false.
struct LarsRule {
    settings: Lars,
    lr_scale: f64,
    /// γ of the step
    rate: f64,
}

impl LarsRule {
    fn new(lr_scale: f64, settings: Lars) -> Self {
        LarsRule { settings, lr_scale, rate: 0.0 }
    }
}

impl Rule<1> for LarsRule {
    type Scratch = ();

    const SCOPE: Scope = Scope::Tensor;
    const STATE: [&'static str; 1] = ["velocity"];
    const USUAL_RATES: Option<UsualRates> = Some(UsualRates {
        least: 1e-4,
        most: 100.0,
        source: "LARS moves a tensor by the rate times 0.001 of its norm, or another `trust_coefficient` (You, Gitman & \
                 Ginsburg 2017, algorithm 1)",
    });

    fn begin(&mut self, _: u64, learning_rate: f64) {
        self.rate = learning_rate * self.lr_scale;
    }

    fn update(&self, update: Update<'_>, [velocity]: [&mut [f32]; 1], (): &mut ()) {
        let Update { parameters, gradient, scale, decay, .. } = update;
        let Lars { weight_decay, momentum, trust_coefficient, trust_ratio } = self.settings;
        let decay = if decay { weight_decay } else { 0.0 };
        let ratio = match trust_ratio {
            true => {
                let norms = [&*parameters, gradient].map(|values| sum_of_squares(values).sqrt());
                ratio(trust_coefficient, norms[0], norms[1] * f64::from(scale), f64::from(decay))
            }
            false => 1.0,
        };
        let rate = (self.rate * ratio) as f32;
        for ((p, g), v) in parameters.iter_mut().zip(gradient).zip(velocity) {
            *v = momentum * *v + rate * (g * scale + decay * *p);
            *p -= *v;
        }
    }
}

/// Returns λ from the norms of a tensor and its gradient; NaN if one of them is NaN.
fn ratio(coefficient: f64, parameters: f64, gradient: f64, decay: f64) -> f64 {
    match parameters == 0.0 || gradient == 0.0 {
        true => 1.0,
        false => coefficient * parameters / (gradient + decay * parameters),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_rate_is_1_where_a_norm_is_0() {
        assert_eq!(ratio(0.5, 6.0, 1.0, 0.25), 1.2);
        assert_eq!(
            [ratio(0.5, 0.0, 1.0, 0.1), ratio(0.5, 6.0, 0.0, 0.1), ratio(0.5, 0.0, 0.0, 0.0)],
            [1.0; 3]
        );
    }
}
