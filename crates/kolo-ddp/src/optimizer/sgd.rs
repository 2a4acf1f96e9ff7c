//! Stochastic gradient descent with momentum, as PyTorch's `torch.optim.SGD` (no dampening).

use std::ops::Range;

use super::{Optimizer, Settings};

pub(super) const ABOUT: &str =
    "SGD with momentum, Nesterov's momentum and L2 weight decay (Sutskever et al. 2013)";

/// g = scale·gradient + λ·θ; v = μ·v + g; θ −= η·v, or with Nesterov θ −= η·(g + μ·v).
///
/// PyTorch starts with v = g; so does this, because v is 0 before.
pub(super) struct Sgd {
    settings: Settings,
    learning_rate: f32,
    velocity: Vec<f32>,
}

impl Sgd {
    pub(super) fn new(len: usize, settings: &Settings) -> Self {
        let len = if settings.momentum == 0.0 { 0 } else { len };
        Sgd { settings: *settings, learning_rate: 0.0, velocity: vec![0.0; len] }
    }
}

impl Optimizer for Sgd {
    fn begin(&mut self, _: u64, learning_rate: f64) {
        self.learning_rate = learning_rate as f32;
    }

    fn update(
        &mut self,
        range: Range<usize>,
        parameters: &mut [f32],
        gradient: &[f32],
        scale: f32,
        decay: bool,
    ) {
        let Settings { momentum, nesterov, weight_decay, .. } = self.settings;
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

    /// θ after two steps with gradient 0.5 and rate 0.1, worked out by hand.
    fn two_steps(settings: Settings) -> f32 {
        let mut sgd = Sgd::new(1, &settings);
        let mut theta = [1.0f32];
        for step in 1..=2 {
            sgd.begin(step, 0.1);
            sgd.update(0..1, &mut theta, &[1.0], 0.5, true);
        }
        theta[0]
    }

    #[test]
    fn matches_the_formulas() {
        let plain = Settings::default();
        let close = |a: f32, b: f32| assert!((a - b).abs() < 1e-6, "{a} {b}");
        close(two_steps(plain), 0.9);
        close(two_steps(Settings { weight_decay: 0.2, ..plain }), 0.93 - 0.1 * (0.5 + 0.2 * 0.93));
        close(two_steps(Settings { momentum: 0.9, ..plain }), 1.0 - 0.05 - 0.1 * 0.95);
        let nesterov = Settings { momentum: 0.9, nesterov: true, ..plain };
        close(two_steps(nesterov), 1.0 - 0.1 * (0.5 + 0.45) - 0.1 * (0.5 + 0.9 * 0.95));
    }
}
