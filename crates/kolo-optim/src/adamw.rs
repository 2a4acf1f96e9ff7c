//! Adam with decoupled weight decay: θ −= η·λ·θ, while the moments see only the gradient
//! ([`adam_rule`](crate::adam_rule)).
//!
//! As in PyTorch's `torch.optim.AdamW`, the decay is multiplied by the learning rate η.

use crate::adam_rule::{Adam, BETA1, BETA2, EPSILON, FREEZE_AFTER, WEIGHT_DECAY, WeightDecay};
use crate::optimizer::Optimizer;
use crate::table::{Entry, Settings};

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "adamw",
    about: "Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2)",
    settings: &[WEIGHT_DECAY, BETA1, BETA2, EPSILON, FREEZE_AFTER],
    make,
};

fn make(settings: &Settings) -> Box<dyn Optimizer> {
    Box::new(Adam::new(&ENTRY, WeightDecay::Decoupled, settings.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adam_rule::AdamSettings;
    use crate::layout::{Kind, Layout, ParamSpec};
    use crate::optimizer::Update;

    /// The paper's algorithm in double precision.
    fn reference(gradients: &[f64], settings: &AdamSettings, rate: f64) -> f64 {
        let (b1, b2) = (f64::from(settings.beta1), f64::from(settings.beta2));
        let (mut theta, mut m, mut v) = (0.7, 0.0, 0.0);
        for (t, g) in (1..).zip(gradients) {
            theta -= rate * f64::from(settings.weight_decay) * theta;
            m = b1 * m + (1.0 - b1) * g;
            v = b2 * v + (1.0 - b2) * g * g;
            let (m_hat, v_hat) = (m / (1.0 - b1.powi(t)), v / (1.0 - b2.powi(t)));
            theta -= rate * m_hat / (v_hat.sqrt() + f64::from(settings.epsilon));
        }
        theta
    }

    #[test]
    fn matches_the_paper() {
        let settings =
            AdamSettings { weight_decay: 0.05, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, freeze_after: 0.0 };
        let gradients = [0.3, -0.2, 0.05, 0.9, -1.5];
        let mut adam = ENTRY.build(&Settings::default().with("weight_decay", 0.05)).unwrap();
        let kind = Kind::Parameter { decay: true };
        adam.init(&Layout::new(vec![ParamSpec::new("theta", vec![3], kind)]));
        let mut theta = [0.7f32; 3];
        for (step, g) in (1..).zip(gradients) {
            adam.begin(step, 0.01);
            let (parameters, gradient) = (&mut theta[1..3], &[2.0 * g as f32; 2]);
            adam.update(Update { range: 1..3, parameters, gradient, scale: 0.5, decay: true, group: 0 });
        }
        let expected = reference(&gradients, &settings, 0.01) as f32;
        assert!((theta[2] - expected).abs() < 1e-6, "{} {expected}", theta[2]);
        assert_eq!(theta[0], 0.7, "outside the range");
    }
}
