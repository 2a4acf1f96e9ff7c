//! Adam with L2 weight decay: g = g + λ·θ, then the moments ([`adam_rule`](crate::adam_rule)).
//!
//! Same as PyTorch's `torch.optim.Adam`. The penalty passes through the moments, so parameters with large
//! gradients decay less than others. [`adamw`](crate::adamw) decays all of them alike.

use crate::adam_rule::{AdamRule, BETA1, BETA2, EPSILON, FREEZE_AFTER, WEIGHT_DECAY, WeightDecay};
use crate::optimizer::Optimizer;
use crate::rule::optimizer;
use crate::table::Entry;

pub(crate) const ENTRY: Entry<dyn Optimizer> = Entry {
    name: "adam",
    about: "Adam with L2 weight decay (Kingma & Ba 2015, algorithm 1)",
    settings: &[WEIGHT_DECAY, BETA1, BETA2, EPSILON, FREEZE_AFTER],
    make: |settings| {
        optimizer(&ENTRY, settings, |scale, settings| AdamRule::new(WeightDecay::Coupled, scale, settings))
    },
};
