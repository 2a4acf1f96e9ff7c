//! The rules by which arbiters decide.

use std::sync::Arc;

use super::recorded::Records;

/// A rule, with what it needs to ask.
#[derive(Clone, Default)]
pub(super) enum Rule {
    /// The only launcher always goes on.
    Sole,
    #[default]
    Majority,
    Recorded(Arc<dyn Records>),
}
