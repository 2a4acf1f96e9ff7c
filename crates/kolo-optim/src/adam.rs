//! Adam with L2 weight decay: g = g + λ·θ, then the moments ([`adam_rule`](crate::adam_rule)).
//!
//! Same as PyTorch's `torch.optim.Adam`. The penalty passes through the moments, so parameters with large
//! gradients decay less than others. [`adamw`](crate::adamw) decays all of them alike.

use crate::adam_rule::{
    AdamRule, AdamSettings, BETA1, BETA2, EPSILON, FREEZE_AFTER, WEIGHT_DECAY, WeightDecay,
};
use crate::optimizer::Optimizer;
use crate::rule::optimizer;
use crate::table::Entry;

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "adam",
    about: "Adam with L2 weight decay (Kingma & Ba 2015, algorithm 1)",
    settings: &[WEIGHT_DECAY, BETA1, BETA2, EPSILON, FREEZE_AFTER],
    make: |settings| {
        optimizer(&ENTRY, settings, |scale, settings| {
            let Adam { weight_decay, beta1, beta2, epsilon, freeze_after } = Adam::read(settings);
            let settings = AdamSettings { weight_decay, beta1, beta2, epsilon, freeze_after };
            AdamRule::new(WeightDecay::Coupled, scale, settings)
        })
    },
};

typed_settings! {
    /// Settings of Adam (`adam`).
    pub struct Adam of ENTRY: dyn Optimizer {
        /// L2 weight decay λ.
        weight_decay: f32,
        /// Decay β₁ of the first moment.
        beta1: f32,
        /// Decay β₂ of the second moment.
        beta2: f32,
        /// Number ε, added to the root of the second moment.
        epsilon: f32,
        /// Steps after which the second moment stays as it is; 0: it never does.
        freeze_after: u64,
    }
}
