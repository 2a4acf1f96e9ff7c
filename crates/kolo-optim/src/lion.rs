//! Lion: steps along the sign of a momentum.

use serde::Deserialize;

use crate::groups::{GroupError, GroupSettings, by_group};
use crate::layout::Layout;
use crate::optimizer::{Optimizer, Update, UsualRates};
use crate::table::{Entry, Setting, Settings};

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "lion",
    about: "Lion, the sign of a momentum with decoupled weight decay (Chen et al. 2023, algorithm 2)",
    settings: &[
        Setting::number("weight_decay", 0.0, 0.0..f64::INFINITY, "Weight decay"),
        Setting::number("beta1", 0.9, 0.0..1.0, "Share of the momentum in a step"),
        Setting::number("beta2", 0.99, 0.0..1.0, "Decay of the momentum"),
    ],
    make: |settings| Box::new(Lion::new(settings.clone())),
};

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct LionSettings {
    /// λ
    weight_decay: f32,
    /// β₁
    beta1: f32,
    /// β₂
    beta2: f32,
}

/// c = β₁m + (1−β₁)g; θ −= η·(sign(c) + λ·θ); m = β₂m + (1−β₂)g, where sign(0) is 0.
///
/// All elements move by η. The paper's learning rates are therefore 3 to 10 times smaller than AdamW's, and
/// its weight decay is larger by the same factor.
struct Lion {
    settings: Settings,
    groups: Vec<Group>,
    momentum: Vec<f32>,
}

struct Group {
    settings: LionSettings,
    lr_scale: f64,
    /// η of the step
    rate: f32,
    /// 1 − η·λ
    decay: f32,
}

impl Lion {
    fn new(settings: Settings) -> Self {
        let groups = vec![Group::new((1.0, settings.read()))];
        Lion { settings, groups, momentum: Vec::new() }
    }
}

impl Group {
    fn new((lr_scale, settings): (f64, LionSettings)) -> Self {
        Group { settings, lr_scale, rate: 0.0, decay: 1.0 }
    }

    fn begin(&mut self, learning_rate: f64) {
        let rate = learning_rate * self.lr_scale;
        self.rate = rate as f32;
        self.decay = (1.0 - rate * f64::from(self.settings.weight_decay)) as f32;
    }
}

impl Optimizer for Lion {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn usual_rates(&self) -> Option<UsualRates> {
        let source = "A step of Lion moves each weight by the rate itself; it takes 3 to 10 times less than AdamW \
                      (Chen et al. 2023, section 5)";
        Some(UsualRates { least: 1e-8, most: 5e-3, source })
    }

    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        self.groups = by_group(&ENTRY, &self.settings, groups)?.into_iter().map(Group::new).collect();
        Ok(())
    }

    fn init(&mut self, layout: &Layout) {
        self.momentum = vec![0.0; layout.len()];
    }

    fn begin(&mut self, _: u64, learning_rate: f64) {
        self.groups.iter_mut().for_each(|group| group.begin(learning_rate));
    }

    fn update(&mut self, update: Update<'_>) {
        let Update { range, parameters, gradient, scale, decay, group } = update;
        let group = &self.groups[group];
        let LionSettings { beta1, beta2, .. } = group.settings;
        let (rate, decay) = (group.rate, if decay { group.decay } else { 1.0 });
        for ((p, g), m) in parameters.iter_mut().zip(gradient).zip(&mut self.momentum[range]) {
            let g = g * scale;
            *p = *p * decay - rate * sign(beta1 * *m + (1.0 - beta1) * g);
            *m = beta2 * *m + (1.0 - beta2) * g;
        }
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        vec![("momentum", &mut self.momentum)]
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
