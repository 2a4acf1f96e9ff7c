//! Adam with decoupled weight decay.

use serde::Deserialize;

use crate::groups::{GroupError, GroupSettings, by_group};
use crate::layout::Layout;
use crate::optimizer::{Optimizer, Update};
use crate::table::{Entry, Setting, Settings};

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "adamw",
    about: "Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2)",
    settings: &[
        Setting::number("weight_decay", 0.0, 0.0..f64::INFINITY, "Weight decay"),
        Setting::number("beta1", 0.9, 0.0..1.0, "Decay of the first moment"),
        Setting::number("beta2", 0.999, 0.0..1.0, "Decay of the second moment"),
        Setting::number("epsilon", 1e-8, 0.0..f64::INFINITY, "Added to the root of the second moment"),
    ],
    make: |settings| Box::new(AdamW::new(settings.clone())),
};

/// Settings of [`AdamW`].
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdamWSettings {
    /// λ
    weight_decay: f32,
    /// β₁
    beta1: f32,
    /// β₂
    beta2: f32,
    /// ε
    epsilon: f32,
}

/// θ −= η·λ·θ; m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; θ −= η·m̂ / (√v̂ + ε), with m̂ = m/(1−β₁ᵗ) and v̂ =
/// v/(1−β₂ᵗ).
///
/// As in PyTorch's `torch.optim.AdamW`, the decay is multiplied by the rate of the moment.
struct AdamW {
    settings: Settings,
    groups: Vec<Group>,
    first: Vec<f32>,
    second: Vec<f32>,
}

/// How the tensors of a group are stepped.
struct Group {
    settings: AdamWSettings,
    lr_scale: f64,
    /// 1 − η·λ
    decay: f32,
    /// η/(1−β₁ᵗ)
    rate: f32,
    /// 1/√(1−β₂ᵗ)
    correction: f32,
}

impl AdamW {
    fn new(settings: Settings) -> Self {
        let groups = vec![Group::new((1.0, settings.read()))];
        AdamW { settings, groups, first: Vec::new(), second: Vec::new() }
    }
}

impl Group {
    fn new((lr_scale, settings): (f64, AdamWSettings)) -> Self {
        Group { settings, lr_scale, decay: 1.0, rate: 0.0, correction: 1.0 }
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        let AdamWSettings { beta1, beta2, weight_decay, .. } = self.settings;
        let rate = learning_rate * self.lr_scale;
        let correct = |beta: f32| 1.0 - f64::from(beta).powf(step as f64);
        self.decay = (1.0 - rate * f64::from(weight_decay)) as f32;
        self.rate = (rate / correct(beta1)) as f32;
        self.correction = (1.0 / correct(beta2).sqrt()) as f32;
    }
}

impl Optimizer for AdamW {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        self.groups = by_group(&ENTRY, &self.settings, groups)?.into_iter().map(Group::new).collect();
        Ok(())
    }

    fn init(&mut self, layout: &Layout) {
        (self.first, self.second) = (vec![0.0; layout.len()], vec![0.0; layout.len()]);
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        self.groups.iter_mut().for_each(|group| group.begin(step, learning_rate));
    }

    fn update(&mut self, update: Update<'_>) {
        let Update { range, parameters, gradient, scale, decay, group } = update;
        let group = &self.groups[group];
        let AdamWSettings { beta1, beta2, epsilon, .. } = group.settings;
        let (rate, correction, decay) = (group.rate, group.correction, if decay { group.decay } else { 1.0 });
        let first = &mut self.first[range.clone()];
        let second = &mut self.second[range];
        for (((p, g), m), v) in parameters.iter_mut().zip(gradient).zip(first).zip(second) {
            let g = g * scale;
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *p = *p * decay - rate * *m / (v.sqrt() * correction + epsilon);
        }
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        vec![("first_moment", &mut self.first), ("second_moment", &mut self.second)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Kind, ParamSpec};

    /// The algorithm in double precision, straight from the paper.
    fn reference(gradients: &[f64], settings: &AdamWSettings, rate: f64) -> f64 {
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
        let settings = AdamWSettings { weight_decay: 0.05, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
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
