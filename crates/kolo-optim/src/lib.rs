//! Optimizers over flat memory: the place of each of a model's tensors ([`Layout`]), the rules by which
//! gradients change parameters ([`Optimizer`]), and the learning rate of each step ([`rate`]).
//!
//! This crate never sees a tensor library, a file or another worker: gradients and parameters come in as
//! slices. It uses no other crate of Kolo. Above it, checkpoints (`kolo_checkpoint`) save an optimizer's
//! state by name, and the training step (`kolo_ddp`) decides which elements to step when.
//!
//! An optimizer of the table has its settings as a type, too. Both have the same defaults:
//!
//! ```
//! use kolo_optim::{AdamW, Settings, named};
//!
//! let typed = AdamW { weight_decay: 0.1, ..AdamW::default() }.build()?;
//! let by_name = named("adamw", &Settings::default().with("weight_decay", 0.1))?;
//! assert_eq!(typed.settings(), by_name.settings());
//! # Ok::<(), kolo_optim::ChoiceError>(())
//! ```
//!
//! A new optimizer is one file here and one line in [`OPTIMIZERS`]. Your own optimizer implements
//! [`Optimizer`]; everything that takes a [`named`] optimizer takes yours as well.

#[doc(hidden)]
#[macro_use]
pub mod typed;

mod adam;
mod adam_rule;
mod adamw;
mod average;
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
mod rule;
mod settings;
mod sgd;
mod state;
mod store;
mod stored;
pub mod table;
mod trust_ratio;
mod update;
mod vectorized;

pub use adam::Adam;
pub use adamw::AdamW;
pub use average::{AVERAGE_OFFSET, Averaged, averages};
pub use element::Element;
pub use groups::{CLASSES, GroupError, GroupSettings, ParamGroup, Selector, SpanGroups, TensorClass, Turns};
pub use lamb::Lamb;
pub use lars::Lars;
pub use layout::{Kind, Layout, ParamSpec, Span, SpanId};
pub use lion::Lion;
pub use memory_order::MemoryOrder;
pub use muon::Muon;
pub use optimizer::{Optimizer, Scope, Update, UsualRates};
pub use sgd::Sgd;
pub use state::{check_store, find_in_state, state_is_finite, state_names, visit_elements, visit_state};
pub use store::{StateStore, StatelessRule, StoreFailure, StoreFault, VisitRun};
pub use stored::{MOST_ARRAYS, Stored, StoredError};
pub use table::{ChoiceError, Settings};
pub use vectorized::vectorized;

use table::Entry;

/// All optimizers of Kolo.
pub static OPTIMIZERS: &[Entry<dyn Optimizer>] =
    &[sgd::ENTRY, adam::ENTRY, adamw::ENTRY, lars::ENTRY, lamb::ENTRY, lion::ENTRY, muon::ENTRY];

/// Returns the entry of [`OPTIMIZERS`] with this name.
///
/// # Errors
///
/// Returns [`ChoiceError::Unknown`], which lists the known names, if there is no such entry.
pub fn find(name: &str) -> Result<&'static Entry<dyn Optimizer>, ChoiceError> {
    table::find("optimizer", OPTIMIZERS, name)
}

/// Builds the optimizer with this name and these settings. Settings that are not given have their defaults.
///
/// # Errors
///
/// Returns an error if no optimizer has this name, if it has no such setting, or if a value is not allowed.
pub fn named(name: &str, settings: &Settings) -> Result<Box<dyn Optimizer>, ChoiceError> {
    find(name)?.build(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings that the table lists are those that the optimizers read.
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

    /// Ranks compare these settings when a job starts.
    #[test]
    fn an_optimizer_returns_every_setting() {
        for entry in OPTIMIZERS {
            let built = |given: &Settings| entry.build(given).unwrap().settings();
            let defaults = built(&Settings::default());
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
                    built(&Settings::default().with(setting.name, other)),
                    defaults,
                    "{}",
                    setting.name
                );
            }
        }
    }

    /// `kolo check` warns of rates outside of these.
    #[test]
    fn every_entry_has_usual_rates() {
        for entry in OPTIMIZERS {
            let rates = entry.build(&Settings::default()).unwrap().usual_rates();
            let UsualRates { least, most, source } = rates.unwrap_or_else(|| panic!("{}", entry.name));
            assert!(0.0 < least && least < most && most.is_finite(), "{}", entry.name);
            assert!(!source.is_empty() && !source.ends_with('.'), "{}", entry.name);
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_with_the_known_ones() {
        let error = named("adagrat", &Settings::default()).err().unwrap().to_string();
        assert!(error.contains("unknown optimizer `adagrat`; known are sgd, adam, adamw"), "{error}");
    }

    /// Types and text have the same defaults and the same settings.
    #[test]
    fn each_type_has_the_settings_of_its_entry() {
        let built = [
            Sgd::default().build(),
            Adam::default().build(),
            AdamW::default().build(),
            Lars::default().build(),
            Lamb::default().build(),
            Lion::default().build(),
            Muon::default().build(),
        ];
        assert_eq!(built.len(), OPTIMIZERS.len());
        for (optimizer, entry) in built.into_iter().zip(OPTIMIZERS) {
            let optimizer = optimizer.unwrap();
            let defaults = entry.complete(&Settings::default()).unwrap();
            assert_eq!((optimizer.name(), optimizer.settings()), (entry.name, defaults));
        }
    }

    #[test]
    fn what_is_given_is_what_the_text_gives() {
        let adamw = AdamW { weight_decay: 0.1, beta2: 0.95, freeze_after: 100, ..AdamW::default() };
        let choice: table::Choice = "adamw:weight_decay=0.1,beta2=0.95,freeze_after=100".parse().unwrap();
        let named = crate::named(&choice.name, &choice.settings).unwrap();
        assert_eq!(adamw.build().unwrap().settings(), named.settings());
        let muon = Muon { nesterov: false, ..Muon::default() };
        assert_eq!(muon.settings().get("nesterov"), Some(table::Value::Flag(false)));
    }

    #[test]
    fn a_value_that_is_not_allowed_is_refused_with_the_allowed_ones() {
        let error = |adamw: AdamW| adamw.build().err().unwrap().to_string();
        for (adamw, words) in [
            (
                AdamW { beta1: 1.0, ..AdamW::default() },
                "beta1 of adamw is 1; it must be at least 0 and below 1",
            ),
            (AdamW { beta2: f32::NAN, ..AdamW::default() }, "beta2 of adamw is NaN; it must be"),
            (AdamW { epsilon: f32::INFINITY, ..AdamW::default() }, "epsilon of adamw is inf; it must be"),
            (AdamW { weight_decay: -0.5, ..AdamW::default() }, "weight_decay of adamw is -0.5; it must be"),
        ] {
            assert!(error(adamw).starts_with(words), "{}", error(adamw));
        }
    }
}
