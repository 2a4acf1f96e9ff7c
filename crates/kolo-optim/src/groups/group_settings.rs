//! What an optimizer is told of a group of tensors.

use serde::de::DeserializeOwned;

use super::error::GroupError;
use crate::table::{Entry, Settings};

/// What is different for some tensors, after all groups that select them have been put together.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSettings {
    /// What selects the tensors, for messages.
    pub tensors: String,
    /// What the learning rate of a step is multiplied by.
    pub lr_scale: f64,
    /// Settings of the optimizer that are others here; the rest are its own.
    pub settings: Settings,
}

impl Default for GroupSettings {
    fn default() -> Self {
        GroupSettings { tensors: String::new(), lr_scale: 1.0, settings: Settings::default() }
    }
}

impl GroupSettings {
    /// Whether the tensors stay as they are: nothing of them is stepped, weight decay and the optimizer's
    /// state included.
    pub fn is_frozen(&self) -> bool {
        self.lr_scale == 0.0
    }

    /// Whether nothing is different here.
    pub fn is_plain(&self) -> bool {
        self.lr_scale == 1.0 && self.settings.is_empty()
    }

    /// With these settings in place of those of an entry.
    fn read<T: ?Sized, S: DeserializeOwned>(
        &self,
        entry: &Entry<T>,
        own: &Settings,
    ) -> Result<S, GroupError> {
        let all = own.clone().into_iter().chain(self.settings.clone()).collect();
        let complete = entry.complete(&all);
        let wrong = |cause| GroupError::Choice { tensors: self.tensors.clone(), cause };
        Ok(complete.map_err(wrong)?.read())
    }
}

/// For each group the factor of the learning rate and the settings, those of `own` where it has no others.
///
/// # Errors
///
/// A group has a setting that the entry does not have, or with a value that it may not have.
pub(crate) fn by_group<T: ?Sized, S: DeserializeOwned>(
    entry: &Entry<T>,
    own: &Settings,
    groups: &[GroupSettings],
) -> Result<Vec<(f64, S)>, GroupError> {
    groups.iter().map(|group| Ok((group.lr_scale, group.read(entry, own)?))).collect()
}
