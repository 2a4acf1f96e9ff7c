//! The way to synchronize that a configuration chooses.

use std::fmt;

use serde::{Serialize, Serializer};

use super::traits::SyncTraits;
use kolo_optim::Settings;
use kolo_optim::table::Choice;

/// An entry of [`SYNCS`](super::SYNCS) with its settings. As text `NAME` or `NAME:SETTING=VALUE,…`, such as
/// `diloco:H=50,outer_lr=0.7`; in a setting's name `-` is as good as `_`, and a number alone is the value of
/// the mode's first setting, as in `delayed:1`.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncMode {
    pub(super) name: &'static str,
    /// Settings that were given; others have their defaults.
    pub(super) settings: Settings,
    pub(super) traits: SyncTraits,
}

impl SyncMode {
    /// Name of the table's entry.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Properties of the mode with these settings.
    pub fn traits(&self) -> SyncTraits {
        self.traits
    }
}

/// Every step.
impl Default for SyncMode {
    fn default() -> Self {
        SyncMode { name: "every-step", settings: Settings::default(), traits: SyncTraits::default() }
    }
}

impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Choice { name: self.name.into(), settings: self.settings.clone() }.fmt(f)
    }
}

/// As its text.
impl Serialize for SyncMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
