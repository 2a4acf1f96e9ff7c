//! An optimizer whose state is in a file.

use std::fmt;
use std::path::{Path, PathBuf};

use kolo_optim::{
    GroupError, GroupSettings, Layout, Optimizer, Scope, Settings, StateStore, StatelessRule, StoreFailure,
    Update, UsualRates, VisitRun,
};

use crate::file_store::{FileStore, MOST_ARRAYS};
use crate::records::Records;

/// Reason why an optimizer's state cannot be in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadError {
    /// Name of the optimizer.
    pub optimizer: String,
}

impl fmt::Display for OffloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the optimizer `{}` keeps its state in memory of its own, so it cannot be offloaded; implement `Optimizer::rule`, or \
             take an optimizer of Kolo's table",
            self.optimizer
        )
    }
}

impl std::error::Error for OffloadError {}

/// An optimizer with its state in an unlinked file of a folder. Each [`Optimizer::init`] makes a new file.
///
/// A file that cannot be created, read or written is a failure of the [store](Optimizer::store), and updates
/// change nothing from then on.
pub struct Offloaded<O> {
    optimizer: O,
    folder: PathBuf,
    store: Place,
}

/// The store, which exists from [`Optimizer::init`] on.
enum Place {
    File(Box<FileStore>),
    Nowhere { names: Vec<&'static str>, failure: Option<StoreFailure> },
}

impl<O: Optimizer> fmt::Debug for Offloaded<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offloaded")
            .field("optimizer", &self.optimizer.name())
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl<O: Optimizer> Offloaded<O> {
    /// Makes an optimizer hold its state in a file of `folder`.
    ///
    /// # Errors
    ///
    /// The optimizer can only hold its state itself.
    pub fn new(mut optimizer: O, folder: &Path) -> Result<Self, OffloadError> {
        let arrays = optimizer.rule().map(|rule| rule.arrays().len());
        if arrays.is_none_or(|arrays| arrays > MOST_ARRAYS) {
            return Err(OffloadError { optimizer: optimizer.name().into() });
        }
        let store = Place::Nowhere { names: Vec::new(), failure: None };
        Ok(Offloaded { optimizer, folder: folder.to_path_buf(), store })
    }

    #[cfg(test)]
    pub(crate) fn cut_file_for_tests(&self) {
        let Place::File(store) = &self.store else { unreachable!("there is a file") };
        store.cut_file_for_tests();
    }

    fn rule(&mut self) -> &mut dyn StatelessRule {
        self.optimizer.rule().unwrap_or_else(|| unreachable!("`Offloaded::new` has seen the rule"))
    }
}

impl<O: Optimizer> Optimizer for Offloaded<O> {
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
        let arrays = self.rule().arrays();
        match &self.store {
            // A file has the arrays with which it began.
            Place::File(store) if store.names() != arrays => {
                Err(GroupError::Unsupported { optimizer: "Offloaded" })
            }
            _ => Ok(()),
        }
    }

    fn init(&mut self, layout: &Layout) {
        let (names, scope) = (self.rule().arrays(), self.scope());
        self.rule().init_stateless(layout);
        // The file before frees its space first.
        self.store = Place::Nowhere { names: names.clone(), failure: None };
        let records = Records::new(layout, scope, names.len());
        self.store = match FileStore::new(&self.folder, names.clone(), records) {
            Ok(store) => Place::File(Box::new(store)),
            Err(failure) => Place::Nowhere { names, failure: Some(failure) },
        };
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        self.optimizer.begin(step, learning_rate);
    }

    fn update(&mut self, mut update: Update<'_>) {
        let Place::File(store) = &mut self.store else { return };
        let Some(rule) = self.optimizer.rule() else { return };
        if store.names().is_empty() || update.range.is_empty() {
            return rule.update_with(update, &mut []);
        }
        // A rule that needs whole tensors has one record for each.
        let all = update.range.clone();
        let mut start = all.start;
        while start < all.end {
            let end = all.end.min(store.end_of(start));
            let part = start - all.start..end - all.start;
            let Update { ref mut parameters, gradient, scale, decay, group, .. } = update;
            let (parameters, gradient) = (&mut parameters[part.clone()], &gradient[part]);
            let piece = Update { range: start..end, parameters, gradient, scale, decay, group };
            store.with(start..end, |state| rule.update_with(piece, state));
            start = end;
        }
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        Vec::new()
    }

    fn store(&mut self) -> Option<&mut dyn StateStore> {
        match &mut self.store {
            Place::File(store) => Some(&mut **store),
            nowhere => Some(nowhere),
        }
    }
}

impl StateStore for Place {
    fn names(&self) -> &[&'static str] {
        match self {
            Place::File(store) => store.names(),
            Place::Nowhere { names, .. } => names,
        }
    }

    fn visit(&mut self, visit: &mut VisitRun<'_>) {
        match self {
            Place::File(store) => store.visit(visit),
            Place::Nowhere { names, .. } => names.iter().for_each(|name| visit(name, 0, &mut [])),
        }
    }

    fn check(&mut self) -> Result<(), StoreFailure> {
        match self {
            Place::File(store) => store.check(),
            Place::Nowhere { failure, .. } => failure.clone().map_or(Ok(()), Err),
        }
    }
}
