//! Stochastic gradient descent with momentum, as PyTorch's `torch.optim.SGD` (no dampening).

use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::optimizer::{Optimizer, Update};
use crate::table::{Entry, Setting, Settings};

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "sgd",
    about: "SGD with momentum, Nesterov's momentum and L2 weight decay (Sutskever et al. 2013)",
    settings: &[
        Setting::number("weight_decay", 0.0, 0.0..f64::INFINITY, "Weight decay"),
        Setting::number("momentum", 0.0, 0.0..1.0, "Momentum; 0 is none"),
        Setting::flag("nesterov", "Nesterov's form of momentum"),
    ],
    make: |settings| Box::new(Sgd::new(settings.read())),
};

/// Settings of [`Sgd`].
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SgdSettings {
    /// λ
    weight_decay: f32,
    /// μ
    momentum: f32,
    nesterov: bool,
}

/// g = scale·gradient + λ·θ; v = μ·v + g; θ −= η·v, or with Nesterov θ −= η·(g + μ·v).
///
/// PyTorch starts with v = g; so does this, because v is 0 before.
struct Sgd {
    settings: SgdSettings,
    learning_rate: f32,
    velocity: Vec<f32>,
}

impl Sgd {
    fn new(settings: SgdSettings) -> Self {
        Sgd { settings, learning_rate: 0.0, velocity: Vec::new() }
    }
}

impl Optimizer for Sgd {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        Settings::of(&self.settings)
    }

    fn init(&mut self, layout: &Layout) {
        let len = if self.settings.momentum == 0.0 { 0 } else { layout.len() };
        self.velocity = vec![0.0; len];
    }

    fn begin(&mut self, _: u64, learning_rate: f64) {
        self.learning_rate = learning_rate as f32;
    }

    fn update(&mut self, update: Update<'_>) {
        let Update { range, parameters, gradient, scale, decay } = update;
        let SgdSettings { momentum, nesterov, weight_decay } = self.settings;
        let (rate, decay) = (self.learning_rate, if decay { weight_decay } else { 0.0 });
        let pairs = parameters.iter_mut().zip(gradient);
        if momentum == 0.0 {
            pairs.for_each(|(p, g)| *p -= rate * (g * scale + decay * *p));
            return;
        }
        let triples = pairs.zip(&mut self.velocity[range]);
        if nesterov {
            triples.for_each(|((p, g), v)| {
                let g = g * scale + decay * *p;
                *v = momentum * *v + g;
                *p -= rate * (g + momentum * *v);
            });
        } else {
            triples.for_each(|((p, g), v)| {
                *v = momentum * *v + (g * scale + decay * *p);
                *p -= rate * *v;
            });
        }
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        if self.velocity.is_empty() { Vec::new() } else { vec![("velocity", &mut self.velocity)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Kind, ParamSpec};

    /// θ after two steps with gradient 0.5 and rate 0.1, worked out by hand.
    fn two_steps(settings: SgdSettings) -> f32 {
        let mut sgd = Sgd::new(settings);
        let kind = Kind::Parameter { decay: true };
        sgd.init(&Layout::new(vec![ParamSpec::new("theta", vec![1], kind)]));
        let mut theta = [1.0f32];
        for step in 1..=2 {
            sgd.begin(step, 0.1);
            let parameters = &mut theta;
            sgd.update(Update { range: 0..1, parameters, gradient: &[1.0], scale: 0.5, decay: true });
        }
        theta[0]
    }

    #[test]
    fn matches_the_formulas() {
        let plain = SgdSettings::default();
        let close = |a: f32, b: f32| assert!((a - b).abs() < 1e-6, "{a} {b}");
        close(two_steps(plain), 0.9);
        close(two_steps(SgdSettings { weight_decay: 0.2, ..plain }), 0.93 - 0.1 * (0.5 + 0.2 * 0.93));
        close(two_steps(SgdSettings { momentum: 0.9, ..plain }), 1.0 - 0.05 - 0.1 * 0.95);
        let nesterov = SgdSettings { momentum: 0.9, nesterov: true, ..plain };
        close(two_steps(nesterov), 1.0 - 0.1 * (0.5 + 0.45) - 0.1 * (0.5 + 0.9 * 0.95));
    }
}
