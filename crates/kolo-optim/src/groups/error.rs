//! What can be wrong with groups of parameters.

use crate::table::{ChoiceError, Setting};

/// Why groups of parameters cannot be as they are given.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GroupError {
    /// The text of a group cannot be read.
    #[error("`{text}`: {problem}; write TENSORS:SETTING=VALUE,… as `head.*,bias:lr_scale=10,weight_decay=0`")]
    Syntax {
        /// All of it.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A pattern or a class selects none of the model's trained tensors.
    #[error("{tensors}: no trained parameter is selected by that; {}", examples(names))]
    NoMatch {
        /// The pattern, or all that the group selects by.
        tensors: String,
        /// Names of parameters that there are.
        names: Vec<String>,
    },
    /// The optimizer has no setting of that name, or it may not have that value.
    #[error("{tensors}: {}", in_group(cause))]
    Choice {
        /// What the group selects by.
        tensors: String,
        /// What is wrong.
        cause: ChoiceError,
    },
    /// A learning rate cannot be multiplied by that.
    #[error("{tensors}: lr_scale is {value}; it must be a number from 0 (frozen)")]
    Scale {
        /// What the group selects by.
        tensors: String,
        /// The number that was given.
        value: f64,
    },
    /// An optimizer of the user's own steps all tensors alike.
    #[error(
        "{optimizer} steps all parameters alike, so of the groups only those with lr_scale 0 (frozen) can be had; implement \
         `Optimizer::set_groups`, or leave `Config::groups` empty"
    )]
    Unsupported {
        /// The optimizer's type.
        optimizer: &'static str,
    },
}

/// Names that are listed where none matches.
const LISTED: usize = 8;

fn examples(names: &[String]) -> String {
    match names.len() {
        0 => "the model has none".into(),
        all if all <= LISTED => format!("there are {}", names.join(", ")),
        // Some from everywhere in the model.
        all => {
            let some: Vec<&str> = (0..LISTED).map(|n| names[n * (all - 1) / (LISTED - 1)].as_str()).collect();
            format!("there are {all}, such as {}", some.join(", "))
        }
    }
}

/// A group has one setting more than an optimizer.
fn in_group(cause: &ChoiceError) -> String {
    match cause {
        ChoiceError::NoSetting { entry, setting, known } => {
            let known: Vec<&str> = known.iter().map(|setting: &Setting| setting.name).collect();
            format!("{entry} has no setting `{setting}`; a group can have lr_scale, {}", known.join(", "))
        }
        other => other.to_string(),
    }
}
