//! Optimizers over flat memory: where each of a model's tensors lives ([`Layout`]), rules by which gradients
//! change parameters ([`Optimizer`]), and learning rates by step ([`rate`]).
//!
//! Never sees a tensor library, a file or another worker: a step's gradient comes in as a slice, and so do
//! the parameters. Nothing of Kolo stands below. Above are checkpoints (`kolo_checkpoint`), which save the
//! state of an optimizer by name, and the step (`kolo_ddp`), which knows when which elements are to be
//! stepped.
//!
//! A new optimizer is a file here and a line in [`OPTIMIZERS`]. A user's own is a type that implements
//! [`Optimizer`]; everything that takes one of the table by [`named`] takes that as well.

mod adam;
mod adam_rule;
mod adamw;
pub mod element;
pub mod finite;
mod groups;
mod lamb;
mod lars;
mod layout;
mod lion;
mod memory_order;
mod muon;
pub mod norm;
mod optimizer;
pub mod rate;
mod settings;
mod sgd;
pub mod table;
mod trust_ratio;
mod vectorised;

pub use element::Element;
pub use groups::{CLASSES, GroupError, GroupSettings, ParamGroup, Selector, SpanGroups, TensorClass};
pub use layout::{Kind, Layout, ParamSpec, Span, SpanId};
pub use memory_order::MemoryOrder;
pub use optimizer::{Optimizer, Scope, Update};
pub use table::{ChoiceError, Settings};
pub use vectorised::vectorised;

use table::Entry;

/// Every optimizer there is.
pub static OPTIMIZERS: &[Entry<dyn Optimizer>] =
    &[sgd::ENTRY, adam::ENTRY, adamw::ENTRY, lars::ENTRY, lamb::ENTRY, lion::ENTRY, muon::ENTRY];

/// The entry of that name in [`OPTIMIZERS`].
///
/// # Errors
///
/// There is none of that name; lists the known ones.
pub fn find(name: &str) -> Result<&'static Entry<dyn Optimizer>, ChoiceError> {
    table::find("optimizer", OPTIMIZERS, name)
}

/// The optimizer of that name, with these settings; the others have their defaults.
///
/// # Errors
///
/// There is none of that name, it has no such setting, or a value is not allowed.
pub fn named(name: &str, settings: &Settings) -> Result<Box<dyn Optimizer>, ChoiceError> {
    find(name)?.build(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the table says of settings is what the optimizers read.
    #[test]
    fn every_entry_builds_from_its_defaults() {
        for entry in OPTIMIZERS {
            let defaults = entry.complete(&Settings::default()).unwrap();
            let mut optimizer = entry.build(&defaults).unwrap();
            assert_eq!((optimizer.name(), optimizer.settings()), (entry.name, defaults));
            optimizer.init(&Layout::new(Vec::new()));
            assert!(optimizer.state().iter().all(|(_, state)| state.is_empty()), "{}", entry.name);
        }
    }

    /// Ranks compare what they say.
    #[test]
    fn an_optimizer_says_every_setting() {
        for entry in OPTIMIZERS {
            let said = |given: &Settings| entry.build(given).unwrap().settings();
            let defaults = said(&Settings::default());
            assert_eq!(entry.build(&Settings::default()).unwrap().name(), entry.name);
            for setting in entry.settings {
                let other = match setting.default {
                    table::Value::Flag(flag) => table::Value::Flag(!flag),
                    table::Value::Number(number) => {
                        let is_whole = matches!(setting.allowed, table::Allowed::Whole(_));
                        table::Value::Number(number + if is_whole { 1.0 } else { 1e-9 })
                    }
                };
                assert_ne!(
                    said(&Settings::default().with(setting.name, other)),
                    defaults,
                    "{}",
                    setting.name
                );
            }
        }
    }

    #[test]
    fn an_unknown_name_is_told_with_the_known_ones() {
        let error = named("adagrat", &Settings::default()).err().unwrap().to_string();
        assert!(error.contains("unknown optimizer `adagrat`; known are sgd, adam, adamw"), "{error}");
    }
}
