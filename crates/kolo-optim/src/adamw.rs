//! Adam with decoupled weight decay: θ −= η·λ·θ, while the moments see only the gradient
//! ([`adam_rule`](crate::adam_rule)).
//!
//! As in PyTorch's `torch.optim.AdamW`, the decay is multiplied by the learning rate η.

use crate::adam_rule::{AdamRule, BETA1, BETA2, EPSILON, FREEZE_AFTER, WEIGHT_DECAY, WeightDecay};
use crate::optimizer::Optimizer;
use crate::rule::optimizer;
use crate::table::Entry;

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "adamw",
    about: "Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2)",
    settings: &[WEIGHT_DECAY, BETA1, BETA2, EPSILON, FREEZE_AFTER],
    make: |settings| {
        optimizer(&ENTRY, settings, |scale, settings| AdamRule::new(WeightDecay::Decoupled, scale, settings))
    },
};
