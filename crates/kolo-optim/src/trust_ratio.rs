//! Setting that switches off the trust ratio of LARS and LAMB.

use crate::table::Setting;

/// On by default. If it is off for a group, the learning rate alone sets the length of the step. This is
/// common for scales, shifts and biases, whose norms say little about a good step length.
pub(crate) const TRUST_RATIO: Setting =
    Setting::flag("trust_ratio", "Steps as long as each tensor's own norm; for groups, see --no-trust-ratio")
        .on();
