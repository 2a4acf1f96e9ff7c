//! The setting by which tensors do without the trust ratio of LARS and LAMB.

use crate::table::Setting;

/// On by default. Off for a group, its tensors are stepped by the learning rate alone: the habit for scales,
/// shifts and biases, whose norms say little about how far they should go.
pub(crate) const TRUST_RATIO: Setting =
    Setting::flag("trust_ratio", "Steps as long as each tensor's own norm; for groups, see --no-trust-ratio")
        .on();
