//! Optimizers over flat memory: one fused pass over parameters, state and gradient.
//!
//! A new one is a file here and a line in [`OPTIMIZERS`].

mod adamw;
mod sgd;

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// What every optimizer can be told. Each reads the fields it has a use for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Weight decay: L2 in SGD, decoupled in AdamW.
    pub weight_decay: f32,
    /// Momentum of SGD; 0 is none.
    pub momentum: f32,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
    /// AdamW's decay of the first moment.
    pub beta1: f32,
    /// AdamW's decay of the second moment.
    pub beta2: f32,
    /// AdamW's ε.
    pub epsilon: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            weight_decay: 0.0,
            momentum: 0.0,
            nesterov: false,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
        }
    }
}

/// A rule by which gradients change parameters.
pub trait Optimizer: Send {
    /// Before the updates of step `step`, counted from 1.
    fn begin(&mut self, step: u64, learning_rate: f64);

    /// Steps elements `range` of flat memory.
    ///
    /// `parameters` and `gradient` are those elements; the gradient still has to be multiplied by `scale`. `decay` says
    /// whether weight decay applies to them.
    fn update(
        &mut self,
        range: Range<usize>,
        parameters: &mut [f32],
        gradient: &[f32],
        scale: f32,
        decay: bool,
    );

    /// Its state: name and one value for each element of flat memory. Together with the number of the step it is all that
    /// a checkpoint needs.
    fn state(&mut self) -> Vec<(&'static str, &mut [f32])>;
}

/// An entry of [`OPTIMIZERS`].
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line, with its source.
    pub about: &'static str,
    /// Makes one for `len` elements of flat memory.
    pub build: fn(len: usize, settings: &Settings) -> Box<dyn Optimizer>,
}

/// Every optimizer there is.
pub static OPTIMIZERS: &[Entry] = &[
    Entry { name: "sgd", about: sgd::ABOUT, build: |len, settings| Box::new(sgd::Sgd::new(len, settings)) },
    Entry {
        name: "adamw",
        about: adamw::ABOUT,
        build: |len, settings| Box::new(adamw::AdamW::new(len, settings)),
    },
];

/// The optimizer of that name; otherwise a message that lists the known ones.
///
/// # Errors
///
/// There is none of that name.
pub fn find(name: &str) -> Result<&'static Entry, crate::Error> {
    OPTIMIZERS.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<&str> = OPTIMIZERS.iter().map(|entry| entry.name).collect();
        crate::Error::Setting(format!("unknown optimizer `{name}`; known are {}", known.join(", ")))
    })
}
