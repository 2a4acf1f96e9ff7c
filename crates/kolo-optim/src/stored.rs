//! An optimizer whose state is in a store.

use std::fmt;

use crate::groups::{GroupError, GroupSettings};
use crate::layout::Layout;
use crate::optimizer::{Optimizer, Scope, Update, UsualRates};
use crate::settings::Settings;
use crate::store::{StateStore, StatelessRule};

/// Most arrays of state that a store has.
pub const MOST_ARRAYS: usize = 8;

/// Reason why an optimizer's state cannot be in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredError {
    /// Name of the optimizer.
    pub optimizer: String,
}

impl fmt::Display for StoredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the optimizer `{}` keeps its state in memory of its own, so it cannot be offloaded, and workers cannot share it; \
             implement `Optimizer::rule`, or take an optimizer of Kolo's table",
            self.optimizer
        )
    }
}

impl std::error::Error for StoredError {}

/// An optimizer with its state in a store. A failure of the [store](Optimizer::store) is one of
/// [`StateStore::check`], and updates change nothing from then on.
pub struct Stored<O, S> {
    optimizer: O,
    store: S,
    /// True if the store has the arrays of the rule.
    has_begun: bool,
}

impl<O: Optimizer, S> fmt::Debug for Stored<O, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("optimizer", &self.optimizer.name()).finish_non_exhaustive()
    }
}

impl<O: Optimizer, S> Stored<O, S> {
    /// Makes an optimizer hold its state in a store.
    ///
    /// # Errors
    ///
    /// The optimizer can only hold its state itself.
    pub fn new(mut optimizer: O, store: S) -> Result<Self, StoredError> {
        let arrays = optimizer.rule().map(|rule| rule.arrays().len());
        match arrays.is_some_and(|arrays| arrays <= MOST_ARRAYS) {
            true => Ok(Stored { optimizer, store, has_begun: false }),
            false => Err(StoredError { optimizer: optimizer.name().into() }),
        }
    }

    fn rule(&mut self) -> &mut dyn StatelessRule {
        self.optimizer.rule().unwrap_or_else(|| unreachable!("`Stored::new` has seen the rule"))
    }
}

impl<O: Optimizer, S: StateStore + Send + 'static> Optimizer for Stored<O, S> {
    fn name(&self) -> &str {
        self.optimizer.name()
    }

    fn settings(&self) -> Settings {
        self.optimizer.settings()
    }

    fn another(&self) -> Option<Box<dyn Optimizer>> {
        self.optimizer.another()
    }

    fn usual_rates(&self) -> Option<UsualRates> {
        self.optimizer.usual_rates()
    }

    fn scope(&self) -> Scope {
        self.optimizer.scope()
    }

    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        self.optimizer.set_groups(groups)?;
        // The store has the arrays with which it began.
        match self.has_begun && self.rule().arrays() != self.store.names() {
            true => Err(GroupError::Unsupported { optimizer: "Stored" }),
            false => Ok(()),
        }
    }

    fn init(&mut self, layout: &Layout) {
        let (scope, arrays) = (self.scope(), self.rule().arrays());
        self.rule().init_stateless(layout);
        self.store.init(layout, scope, arrays);
        self.has_begun = true;
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        self.store.begin();
        self.optimizer.begin(step, learning_rate);
    }

    fn update(&mut self, update: Update<'_>) {
        if let Some(rule) = self.optimizer.rule() {
            self.store.update(rule, update);
        }
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        Vec::new()
    }

    fn store(&mut self) -> Option<&mut dyn StateStore> {
        Some(&mut self.store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Averaged;

    #[test]
    fn an_optimizer_without_a_rule_of_its_own_is_named() {
        struct Own;
        impl Optimizer for Own {
            fn name(&self) -> &str {
                "mine"
            }
            fn init(&mut self, _: &Layout) {}
            fn begin(&mut self, _: u64, _: f64) {}
            fn update(&mut self, _: Update<'_>) {}
            fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
                Vec::new()
            }
        }
        let error = Stored::new(Own, ()).unwrap_err().to_string();
        assert!(error.starts_with("the optimizer `mine` keeps its state in memory of its own"), "{error}");
        let error = Stored::new(Averaged::new(Own, 0.5, false), ()).unwrap_err();
        assert_eq!(error.optimizer, "mine");
    }
}
