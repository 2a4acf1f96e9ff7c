//! Group of parameters, as a configuration holds it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::GroupError;
use super::selector::Selector;
use crate::layout::{Layout, ParamSpec};
use crate::table::{Entry, Settings, Value};

/// Settings that differ for some tensors of a model.
///
/// A tensor may be in several groups of a list. They apply in order, setting by setting: a later group
/// overrides an earlier one in the settings that it names.
///
/// ```
/// use kolo_optim::{TensorClass, ParamGroup};
///
/// let groups = [
///     // Fine-tuned layers learn slowly, the new head ten times as fast as the rest.
///     ParamGroup::of(["layer3.*", "layer4.*"]).with_lr_scale(0.1),
///     ParamGroup::of(["fc.*"]).with_lr_scale(10.0).with("weight_decay", 0.1),
///     ParamGroup::of(["conv1.*"]).frozen(),
///     // Last, so that it overrides the other groups.
///     ParamGroup::without_decay([TensorClass::Norm, TensorClass::Bias]),
/// ];
/// // The text form, as in `kolo train --group`.
/// assert_eq!(groups[1].to_string(), "fc.*:lr_scale=10,weight_decay=0.1");
/// assert_eq!("fc.*:lr_scale=10,weight_decay=0.1".parse(), Ok(groups[1].clone()));
/// assert_eq!("norm,bias:weight_decay=0".parse(), Ok(groups[3].clone()));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamGroup {
    /// Selectors; a tensor is in the group if at least one selects it.
    pub tensors: Vec<Selector>,
    /// Factor of the learning rate, like timm's `lr_scale`. 0 freezes the tensors and their part of the
    /// optimizer's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lr_scale: Option<f64>,
    /// Settings of the optimizer, such as `weight_decay`, that differ here.
    #[serde(flatten)]
    pub settings: Settings,
}

impl ParamGroup {
    /// Creates a group of the tensors selected by name patterns such as `"head.*"`, by class words such as
    /// `"norm"`, or by a [`TensorClass`](super::TensorClass). Nothing differs for them yet.
    pub fn of<S: Into<Selector>>(tensors: impl IntoIterator<Item = S>) -> Self {
        let tensors = tensors.into_iter().map(Into::into).collect();
        ParamGroup { tensors, lr_scale: None, settings: Settings::default() }
    }

    /// Creates a group without weight decay, as is common for normalizations and biases.
    pub fn without_decay<S: Into<Selector>>(tensors: impl IntoIterator<Item = S>) -> Self {
        ParamGroup::of(tensors).with("weight_decay", 0.0)
    }

    /// Creates a group without trust ratios (LARS and LAMB): its steps depend on the learning rate alone, not
    /// on norms. This is common for normalizations and biases.
    pub fn without_trust_ratio<S: Into<Selector>>(tensors: impl IntoIterator<Item = S>) -> Self {
        ParamGroup::of(tensors).with("trust_ratio", false)
    }

    /// Multiplies the learning rate of every step by `scale`.
    pub fn with_lr_scale(self, scale: f64) -> Self {
        ParamGroup { lr_scale: Some(scale), ..self }
    }

    /// Freezes these tensors. Their gradients are still computed, reduced, and seen by gradient transforms.
    pub fn frozen(self) -> Self {
        self.with_lr_scale(0.0)
    }

    /// Sets another value for a setting of the optimizer.
    pub fn with(self, name: &str, value: impl Into<Value>) -> Self {
        ParamGroup { settings: self.settings.with(name, value), ..self }
    }

    /// Checks everything that does not depend on the model.
    ///
    /// # Errors
    ///
    /// Returns an error if the entry lacks a setting, or if a value or the factor of the learning rate is not
    /// allowed.
    pub fn check<T: ?Sized>(&self, entry: &Entry<T>) -> Result<(), GroupError> {
        self.check_scale()?;
        let error = |cause| GroupError::Choice { tensors: self.selected_by(), cause };
        entry.complete(&self.settings).map(drop).map_err(error)
    }

    pub(super) fn check_scale(&self) -> Result<(), GroupError> {
        match self.lr_scale {
            Some(value) if !(value >= 0.0 && value.is_finite()) => {
                Err(GroupError::Scale { tensors: self.selected_by(), value })
            }
            _ => Ok(()),
        }
    }

    /// Returns true if this tensor of `model` is trained and in the group.
    pub fn selects(&self, spec: &ParamSpec, model: &Layout) -> bool {
        spec.kind.is_trained() && self.tensors.iter().any(|selector| selector.selects(spec, model))
    }

    /// Returns the selectors in the form of the command line.
    pub(super) fn selected_by(&self) -> String {
        if self.tensors.is_empty() {
            return "(nothing)".into();
        }
        self.tensors.iter().map(Selector::to_string).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for ParamGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.selected_by())?;
        match self.lr_scale {
            Some(scale) if self.settings.is_empty() => write!(f, "{LR_SCALE}={}", Value::Number(scale)),
            Some(scale) => write!(f, "{LR_SCALE}={},{}", Value::Number(scale), self.settings),
            None => self.settings.fmt(f),
        }
    }
}

/// Name of the learning rate's factor among a group's settings.
const LR_SCALE: &str = "lr_scale";

/// Reads `TENSORS:SETTING=VALUE,…`, with commas between selectors as well.
impl FromStr for ParamGroup {
    type Err = GroupError;

    fn from_str(text: &str) -> Result<Self, GroupError> {
        let syntax_error = |problem| GroupError::Syntax { text: text.into(), problem };
        let (tensors, settings) = text.rsplit_once(':').ok_or(syntax_error("it has no colon"))?;
        if tensors.split(',').any(|selector| selector.trim().is_empty()) {
            return Err(syntax_error("a name or a class of tensors is missing"));
        }
        let mut group = ParamGroup::of(tensors.split(','));
        for (name, value) in settings.parse::<Settings>().map_err(syntax_error)? {
            group = match (name.as_str(), value) {
                (LR_SCALE, Value::Number(scale)) => group.with_lr_scale(scale),
                (LR_SCALE, Value::Flag(_)) => return Err(syntax_error("lr_scale must be a number")),
                (name, value) => group.with(name, value),
            };
        }
        Ok(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_displayed_group_is_parsed_again() {
        for text in [
            "norm,bias:weight_decay=0",
            "*:lr_scale=0",
            "a:b.*,1d:lr_scale=1e-4,momentum=0.5,nesterov=true",
            "fc.weight:weight_decay=1e-5",
        ] {
            let group: ParamGroup = text.parse().unwrap();
            assert_eq!(group.to_string(), text);
            let json = serde_json::to_string(&group).unwrap();
            assert_eq!(serde_json::from_str::<ParamGroup>(&json).unwrap(), group, "{json}");
        }
        let spaces: ParamGroup = "a , b : lr_scale = 2".parse().unwrap();
        assert_eq!(spaces, ParamGroup::of(["a", "b"]).with_lr_scale(2.0));
    }

    #[test]
    fn a_syntax_error_shows_the_right_form() {
        for (text, message) in [
            ("head.*", "no colon"),
            (":lr_scale=1", "a name or a class of tensors is missing"),
            ("a,,b:lr_scale=1", "a name or a class of tensors is missing"),
            ("a:", "a setting has no value"),
            ("a:weight_decay", "a setting has no value"),
            ("a:weight_decay=big", "a value must be a number, true or false"),
            ("a:lr_scale=true", "lr_scale must be a number"),
            ("a:weight_decay=0,weight_decay=1", "given twice"),
            ("a:lr_scale=0,lr_scale=1", "given twice"),
        ] {
            let error = text.parse::<ParamGroup>().unwrap_err().to_string();
            let named = error.starts_with(&format!("`{text}`: ")) && error.contains("TENSORS:SETTING=VALUE");
            assert!(named && error.contains(message), "{error}");
        }
    }
}
