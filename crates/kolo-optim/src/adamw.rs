//! Adam with decoupled weight decay: θ −= η·λ·θ, while the moments see only the gradient
//! ([`adam_rule`](crate::adam_rule)).
//!
//! As in PyTorch's `torch.optim.AdamW`, the decay is multiplied by the learning rate η.

use crate::adam_rule::{
    AdamRule, AdamSettings, BETA1, BETA2, EPSILON, FREEZE_AFTER, WEIGHT_DECAY, WeightDecay,
};
use crate::optimizer::Optimizer;
use crate::rule::optimizer;
use crate::table::Entry;

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "adamw",
    about: "Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2)",
    settings: &[WEIGHT_DECAY, BETA1, BETA2, EPSILON, FREEZE_AFTER],
    make: |settings| {
        optimizer(&ENTRY, settings, |scale, settings| {
            let AdamW { weight_decay, beta1, beta2, epsilon, freeze_after } = AdamW::read(settings);
            let settings = AdamSettings { weight_decay, beta1, beta2, epsilon, freeze_after };
            AdamRule::new(WeightDecay::Decoupled, scale, settings)
        })
    },
};

typed_settings! {
    /// Settings of AdamW (`adamw`).
    pub struct AdamW of ENTRY: dyn Optimizer {
        /// Decoupled weight decay λ.
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
