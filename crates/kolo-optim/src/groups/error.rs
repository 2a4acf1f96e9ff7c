//! Errors of parameter groups.

use crate::table::{ChoiceError, Setting, Value};

/// Error in the groups of parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum GroupError {
    /// A group cannot be parsed.
    #[error("`{text}`: {problem}; write TENSORS:SETTING=VALUE,… as `head.*,bias:lr_scale=10,weight_decay=0`")]
    Syntax { text: String, problem: &'static str },
    /// A pattern or a class selects none of the model's trained tensors.
    #[error("{tensors}: this selects no trained parameter; {}", examples(names))]
    NoMatch { tensors: String, names: Vec<String> },
    /// All of the model's parameters would be frozen.
    #[error("{tensors}: this freezes all parameters, and leaves nothing to train; freeze fewer")]
    All { tensors: String },
    /// The optimizer lacks a group's setting, or does not allow its value.
    #[error("{tensors}: {}", in_group(cause))]
    Choice { tensors: String, cause: ChoiceError },
    /// A trained tensor is in no turn, though there are turns.
    #[error("`{tensor}` is in no turn, so no step would train it; add it to one, or freeze it (`no_grad`)")]
    NoTurn { tensor: String },
    /// A tensor is in two turns that differ in other tensors.
    #[error(
        "`{tensor}` is in the turns {} and {}, which differ otherwise; two turns must have the same tensors, or none in common",
        turns[0], turns[1]
    )]
    TwoTurns {
        tensor: String,
        /// Numbers of the turns, from 0.
        turns: [usize; 2],
    },
    /// The factor of the learning rate is negative or not finite.
    #[error("{tensors}: lr_scale is {}; it must be a finite number from 0 (frozen)", Value::Number(*value))]
    Scale {
        tensors: String,
        /// Factor as given.
        value: f64,
    },
    /// The user's optimizer steps all tensors alike.
    #[error(
        "{optimizer} steps all parameters alike, so it takes only groups with lr_scale 0 (frozen); implement \
         `Optimizer::set_groups`, or leave `Config::groups` empty"
    )]
    Unsupported { optimizer: &'static str },
}

/// Number of names in the message if none matches.
const LISTED: usize = 8;

fn examples(names: &[String]) -> String {
    match names.len() {
        0 => "the model has none".into(),
        all if all <= LISTED => format!("there are {}", names.join(", ")),
        // The examples come from all parts of the model.
        all => {
            let some: Vec<&str> = (0..LISTED).map(|n| names[n * (all - 1) / (LISTED - 1)].as_str()).collect();
            format!("there are {all}, such as {}", some.join(", "))
        }
    }
}

/// A group accepts `lr_scale` besides the optimizer's settings.
fn in_group(cause: &ChoiceError) -> String {
    match cause {
        ChoiceError::NoSetting { entry, setting, known } => {
            let known: Vec<&str> = known.iter().map(|setting: &Setting| setting.name).collect();
            format!("{entry} has no setting `{setting}`; a group can have lr_scale, {}", known.join(", "))
        }
        other => other.to_string(),
    }
}
