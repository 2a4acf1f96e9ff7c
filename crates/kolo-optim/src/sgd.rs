//! Stochastic gradient descent with momentum, same as PyTorch's `torch.optim.SGD` without dampening.

use crate::optimizer::{Optimizer, Update, UsualRates};
use crate::rule::{Rule, optimizer};
use crate::table::{Entry, Setting};

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "sgd",
    about: "SGD with momentum, Nesterov's momentum and L2 weight decay (Sutskever et al. 2013)",
    settings: &[
        Setting::number("weight_decay", 0.0, 0.0..f64::INFINITY, "Weight decay"),
        Setting::number("momentum", 0.0, 0.0..1.0, "Momentum; 0 is none"),
        Setting::flag("nesterov", "Nesterov's form of momentum"),
    ],
    make: |settings| optimizer(&ENTRY, settings, |scale, settings| SgdRule::new(scale, Sgd::read(settings))),
};

typed_settings! {
    /// Settings of SGD with momentum (`sgd`).
    pub struct Sgd of ENTRY: dyn Optimizer {
        /// L2 weight decay λ.
        weight_decay: f32,
        /// Momentum μ; 0 is none.
        momentum: f32,
        /// Nesterov's form of momentum.
        nesterov: bool,
    }
}

/// g = scale·gradient + λ·θ; v = μ·v + g; θ −= η·v, or with Nesterov θ −= η·(g + μ·v).
///
/// The first step has v = g, as in PyTorch, because v starts at 0.
struct SgdRule {
    settings: Sgd,
    lr_scale: f64,
    /// η of the step
    rate: f32,
}

impl SgdRule {
    fn new(lr_scale: f64, settings: Sgd) -> Self {
        SgdRule { settings, lr_scale, rate: 0.0 }
    }
}

impl Rule<1> for SgdRule {
    type Scratch = ();

    const STATE: [&'static str; 1] = ["velocity"];
    const USUAL_RATES: Option<UsualRates> = Some(UsualRates {
        least: 1e-5,
        most: 10.0,
        source: "Goyal et al. 2017 (section 5.1) train with 0.1 for 256 images and with 3.2 for 8,192",
    });

    fn has_state(&self) -> bool {
        self.settings.momentum != 0.0
    }

    fn begin(&mut self, _: u64, learning_rate: f64) {
        self.rate = (learning_rate * self.lr_scale) as f32;
    }

    fn update(&self, update: Update<'_>, [velocity]: [&mut [f32]; 1], (): &mut ()) {
        let Update { parameters, gradient, scale, decay, .. } = update;
        let (Sgd { momentum, nesterov, weight_decay }, rate) = (self.settings, self.rate);
        let decay = if decay { weight_decay } else { 0.0 };
        let pairs = parameters.iter_mut().zip(gradient);
        if momentum == 0.0 {
            pairs.for_each(|(p, g)| *p -= rate * (g * scale + decay * *p));
            return;
        }
        let triples = pairs.zip(velocity);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::GroupSettings;
    use crate::layout::{Kind, Layout, ParamSpec};
    use crate::table::Settings;

    /// Returns θ after two steps with gradient 0.5 and rate 0.1; the tests compare it with values computed by
    /// hand.
    fn two_steps(settings: Settings) -> f32 {
        let mut sgd = ENTRY.build(&settings).unwrap();
        let kind = Kind::Parameter { decay: true };
        sgd.init(&Layout::new(vec![ParamSpec::new("theta", vec![1], kind)]));
        let mut theta = [1.0f32];
        for step in 1..=2 {
            sgd.begin(step, 0.1);
            let parameters = &mut theta;
            let gradient = &[1.0];
            sgd.update(Update { range: 0..1, parameters, gradient, scale: 0.5, decay: true, group: 0 });
        }
        theta[0]
    }

    #[test]
    fn matches_the_formulas() {
        let plain = Settings::default;
        let momentum = || plain().with("momentum", 0.9);
        let close = |a: f32, b: f32| assert!((a - b).abs() < 1e-6, "{a} {b}");
        close(two_steps(plain()), 0.9);
        close(two_steps(plain().with("weight_decay", 0.2)), 0.93 - 0.1 * (0.5 + 0.2 * 0.93));
        close(two_steps(momentum()), 1.0 - 0.05 - 0.1 * 0.95);
        close(
            two_steps(momentum().with("nesterov", true)),
            1.0 - 0.1 * (0.5 + 0.45) - 0.1 * (0.5 + 0.9 * 0.95),
        );
    }

    #[test]
    fn groups_that_come_late_may_add_momentum() {
        let mut sgd = ENTRY.build(&Settings::default()).unwrap();
        sgd.init(&Layout::new(vec![ParamSpec::new("theta", vec![2], Kind::Parameter { decay: true })]));
        let group = |momentum| GroupSettings {
            settings: Settings::default().with("momentum", momentum),
            ..GroupSettings::default()
        };
        let mut theta = [1.0f32; 2];
        for (momentum, expected) in [(0.5, 0.9), (0.5, 0.75), (0.0, 0.65), (0.5, 0.55)] {
            sgd.set_groups(&[GroupSettings::default(), group(momentum)]).unwrap();
            sgd.begin(1, 0.1);
            let (parameters, gradient) = (&mut theta[..], &[1.0; 2][..]);
            sgd.update(Update { range: 0..2, parameters, gradient, scale: 1.0, decay: true, group: 1 });
            assert!((theta[1] - expected).abs() < 1e-6, "{} {expected}", theta[1]);
        }
    }
}
