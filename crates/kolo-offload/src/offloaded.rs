//! An optimizer whose state is in a file.

use std::fmt;
use std::mem::replace;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kolo_optim::{
    GroupError, GroupSettings, Layout, Optimizer, Scope, Settings, StateStore, StatelessRule, StoreFailure,
    StoreFault, Update, UsualRates, VisitRun,
};

use crate::file_store::{FileStore, MOST_ARRAYS, Space};
use crate::records::Records;
use crate::state_file::StateFile;

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

/// An optimizer with its state in an unlinked file of a folder. Each [`Optimizer::init`] begins anew in the
/// same file, so the folder is needed only at the start. If the disk has no room for more state after a step,
/// that state is in memory, with a warning.
///
/// A file that cannot be created, read or written is a failure of the [store](Optimizer::store), and updates
/// change nothing from then on.
pub struct Offloaded<O> {
    optimizer: O,
    folder: PathBuf,
    store: Place,
    /// True if a step has begun: then another place is better than none.
    has_stepped: bool,
}

/// The store, which exists from [`Optimizer::init`] on.
enum Place {
    File(Box<FileStore>),
    Nowhere { names: Vec<&'static str>, opened: Result<Arc<StateFile>, StoreFailure> },
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
    /// Makes an optimizer hold its state in a file of `folder`. A folder that cannot have one is a failure of
    /// the store.
    ///
    /// # Errors
    ///
    /// The optimizer can only hold its state itself.
    pub fn new(mut optimizer: O, folder: &Path) -> Result<Self, OffloadError> {
        let arrays = optimizer.rule().map(|rule| rule.arrays().len());
        if arrays.is_none_or(|arrays| arrays > MOST_ARRAYS) {
            return Err(OffloadError { optimizer: optimizer.name().into() });
        }
        let opened = StateFile::new(folder).map(Arc::new);
        let store = Place::Nowhere { names: Vec::new(), opened };
        Ok(Offloaded { optimizer, folder: folder.to_path_buf(), store, has_stepped: false })
    }

    #[cfg(test)]
    pub(crate) fn cut_file_for_tests(&self) {
        let Place::File(store) = &self.store else { unreachable!("there is a file") };
        store.cut_file_for_tests();
    }

    /// Returns space for so many bytes: the file before, whose name nobody needs, or else memory.
    pub(crate) fn space(&mut self, bytes: u64) -> Result<Space, StoreFailure> {
        let nothing = StoreFailure { fault: StoreFault::Lost, problem: String::new() };
        let (file, is_fresh) =
            match replace(&mut self.store, Place::Nowhere { names: Vec::new(), opened: Err(nothing) }) {
                // Its thread has ended all writes.
                Place::File(store) if !store.has_failed() => (store.into_file(), false),
                Place::Nowhere { opened: Ok(file), .. } => (file, true),
                _ => (Arc::new(StateFile::new(&self.folder)?), true),
            };
        match file.resize(bytes) {
            Ok(()) => Ok(Space { file, is_fresh, warning: None }),
            Err(failure) if self.has_stepped => {
                let memory = StateFile::in_memory(&self.folder, bytes).map_err(|_| failure.clone())?;
                let warning = format!("{failure}; until this worker ends, that state is in memory");
                Ok(Space { file: Arc::new(memory), is_fresh: true, warning: Some(warning) })
            }
            Err(failure) => Err(failure),
        }
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
        let records = Records::new(layout, scope, names.len());
        let store =
            self.space(records.bytes()).and_then(|space| FileStore::new(space, names.clone(), records));
        self.store = match store {
            Ok(store) => Place::File(Box::new(store)),
            Err(failure) => Place::Nowhere { names, opened: Err(failure) },
        };
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        self.has_stepped = true;
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

    fn take_warning(&mut self) -> Option<String> {
        match self {
            Place::File(store) => store.take_warning(),
            Place::Nowhere { .. } => None,
        }
    }

    fn check(&mut self) -> Result<(), StoreFailure> {
        match self {
            Place::File(store) => store.check(),
            Place::Nowhere { opened, .. } => opened.as_ref().map(drop).map_err(Clone::clone),
        }
    }
}
