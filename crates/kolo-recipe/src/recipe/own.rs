//! Parts of a run that its program brings itself.

use serde::{Deserialize, Serialize};

/// Parts that the program of a run brings in place of those that a recipe names. Only that program can
/// continue the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnParts {
    /// Name of the optimizer, with its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// Name of the reduction, with its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduction: Option<String>,
    /// Learning rates of the first, the middle and the last step of all epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Names of the transforms behind those of the recipe, with their settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<String>,
}

impl OwnParts {
    /// Returns true if the program brings none.
    pub fn is_empty(&self) -> bool {
        *self == OwnParts::default()
    }
}
