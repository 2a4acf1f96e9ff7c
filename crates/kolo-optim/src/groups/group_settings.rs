//! Settings of a group of tensors, as the optimizer receives them.

use serde::de::DeserializeOwned;

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

    /// Reads an optimizer's own settings, overridden by those of the group.
    fn read<T: ?Sized, S: DeserializeOwned>(
        &self,
        entry: &Entry<T>,
        own: &Settings,
    ) -> Result<S, GroupError> {
        let all = own.clone().into_iter().chain(self.settings.clone()).collect();
        let complete = entry.complete(&all);
        let error = |cause| GroupError::Choice { tensors: self.tensors.clone(), cause };
        Ok(complete.map_err(error)?.read())
    }
}

/// Returns, for each group, the factor of the learning rate and the settings, which default to `own`.
/// Returns an error if a group has a setting that the entry lacks, or a value that is not allowed.
pub(crate) fn by_group<T: ?Sized, S: DeserializeOwned>(
    entry: &Entry<T>,
    own: &Settings,
    groups: &[GroupSettings],
) -> Result<Vec<(f64, S)>, GroupError> {
    groups.iter().map(|group| Ok((group.lr_scale, group.read(entry, own)?))).collect()
}
