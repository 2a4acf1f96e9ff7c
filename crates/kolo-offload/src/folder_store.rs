//! The store of an optimizer's state that is in a file.

use std::mem::replace;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kolo_optim::{Layout, Scope, StateStore, StatelessRule, StoreFailure, StoreFault, Update, VisitRun};

use crate::file_store::{FileStore, Space};
use crate::records::Records;
use crate::state_file::StateFile;

/// State of an optimizer in an unlinked file of a folder. Each [`StateStore::init`] begins anew in the same
/// file, so the folder is needed only at the start. If the disk has no room for more state after a step, that
/// state is in memory, with a warning.
#[derive(Debug)]
pub struct FolderStore {
    folder: PathBuf,
    state: State,
    /// True if a step has begun: then another place is better than none.
    has_stepped: bool,
}

/// The state, which exists from [`StateStore::init`] on.
#[derive(Debug)]
enum State {
    File(Box<FileStore>),
    Nowhere { names: Vec<&'static str>, opened: Result<Arc<StateFile>, StoreFailure> },
}

impl FolderStore {
    /// Creates a file in a folder. A folder that cannot have one is a failure of the store.
    pub fn new(folder: &Path) -> Self {
        let opened = StateFile::new(folder).map(Arc::new);
        let state = State::Nowhere { names: Vec::new(), opened };
        FolderStore { folder: folder.to_path_buf(), state, has_stepped: false }
    }

    #[cfg(test)]
    pub(crate) fn file_for_tests(&self) -> Arc<StateFile> {
        let State::Nowhere { opened: Ok(file), .. } = &self.state else { unreachable!("it has not begun") };
        file.clone()
    }

    /// Returns space for so many bytes: the file before, whose name nobody needs, or else memory.
    pub(crate) fn space(&mut self, bytes: u64) -> Result<Space, StoreFailure> {
        let nothing = StoreFailure { fault: StoreFault::Lost, problem: String::new() };
        let (file, is_fresh) =
            match replace(&mut self.state, State::Nowhere { names: Vec::new(), opened: Err(nothing) }) {
                // Its thread has ended all writes.
                State::File(store) if !store.has_failed() => (store.into_file(), false),
                State::Nowhere { opened: Ok(file), .. } => (file, true),
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
}

impl StateStore for FolderStore {
    fn names(&self) -> &[&'static str] {
        match &self.state {
            State::File(store) => store.names(),
            State::Nowhere { names, .. } => names,
        }
    }

    fn init(&mut self, layout: &Layout, scope: Scope, names: Vec<&'static str>) {
        let records = Records::new(layout, scope, names.len());
        let space = self.space(records.bytes());
        let store = space.and_then(|space| FileStore::new(space, names.clone(), records));
        self.state = match store {
            Ok(store) => State::File(Box::new(store)),
            Err(failure) => State::Nowhere { names, opened: Err(failure) },
        };
    }

    fn begin(&mut self) {
        self.has_stepped = true;
    }

    fn update(&mut self, rule: &mut dyn StatelessRule, mut update: Update<'_>) {
        let State::File(store) = &mut self.state else { return };
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

    fn visit(&mut self, visit: &mut VisitRun<'_>) {
        match &mut self.state {
            State::File(store) => store.visit(visit),
            State::Nowhere { names, .. } => names.iter().for_each(|name| visit(name, 0, &mut [])),
        }
    }

    fn visit_array(&mut self, array: &str, elements: &Range<usize>, visit: &mut VisitRun<'_>) {
        if let State::File(store) = &mut self.state {
            store.visit_array(array, elements, visit);
        }
    }

    fn take_warning(&mut self) -> Option<String> {
        match &mut self.state {
            State::File(store) => store.take_warning(),
            State::Nowhere { .. } => None,
        }
    }

    fn check(&mut self) -> Result<(), StoreFailure> {
        match &self.state {
            State::File(store) => store.check(),
            State::Nowhere { opened, .. } => opened.as_ref().map(drop).map_err(Clone::clone),
        }
    }
}
