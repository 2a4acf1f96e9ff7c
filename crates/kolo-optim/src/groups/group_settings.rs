//! Settings of a group of tensors, as the optimizer receives them.

use super::error::GroupError;
use crate::table::{Entry, Settings};

/// Differences for some tensors, merged from all groups that select them.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSettings {
    /// Selectors of the tensors, for messages.
    pub tensors: String,
    /// Factor of the learning rate.
    pub lr_scale: f64,
    /// Settings of the optimizer that differ here; the others keep the optimizer's values.
    pub settings: Settings,
}

impl Default for GroupSettings {
    fn default() -> Self {
        GroupSettings { tensors: String::new(), lr_scale: 1.0, settings: Settings::default() }
    }
}

impl GroupSettings {
    /// Returns true if the tensors are never changed. Neither weight decay nor the optimizer's state changes
    /// either.
    pub fn is_frozen(&self) -> bool {
        self.lr_scale == 0.0
    }

    /// Returns true if nothing differs from the optimizer's own settings.
    pub fn is_plain(&self) -> bool {
        self.lr_scale == 1.0 && self.settings.is_empty()
    }

    /// Returns an optimizer's own settings, overridden by those of the group.
    fn complete<T: ?Sized>(&self, entry: &Entry<T>, own: &Settings) -> Result<Settings, GroupError> {
        let all = own.clone().into_iter().chain(self.settings.clone()).collect();
        let error = |cause| GroupError::Choice { tensors: self.tensors.clone(), cause };
        entry.complete(&all).map_err(error)
    }
}

/// Returns, for each group, the factor of the learning rate and the settings, which default to `own`.
/// Returns an error if a group has a setting that the entry lacks, or a value that is not allowed.
pub(crate) fn by_group<T: ?Sized>(
    entry: &Entry<T>,
    own: &Settings,
    groups: &[GroupSettings],
) -> Result<Vec<(f64, Settings)>, GroupError> {
    groups.iter().map(|group| Ok((group.lr_scale, group.complete(entry, own)?))).collect()
}
