//! For tests: the order in which files are written, synced and renamed, and what is wrong with it.
//!
//! A [`Recording`] sees what any thread of the process does below a folder. [`mistakes`] finds what a power
//! failure could show: a name that is not durable, or one that leads to bytes that are not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::operation::Operation;

/// What one recording has seen, and what it lets fail.
struct Watch {
    place: PathBuf,
    operations: Mutex<Vec<Operation>>,
    fails: Box<Fails>,
}

/// The error with which an operation is to fail.
type Fails = dyn Fn(&Operation) -> Option<io::Error> + Send + Sync;

static WATCHES: Mutex<Vec<Arc<Watch>>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that has failed must not make others fail.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records until it is dropped.
pub struct Recording(Arc<Watch>);

impl Recording {
    /// Records what is done below a folder.
    pub fn of(place: &Path) -> Self {
        Self::failing(place, |_| None)
    }

    /// The same, and lets those operations fail for which `fails` gives an error: they are not done.
    pub fn failing(
        place: &Path,
        fails: impl Fn(&Operation) -> Option<io::Error> + Send + Sync + 'static,
    ) -> Self {
        let watch = Watch { place: place.into(), operations: Mutex::default(), fails: Box::new(fails) };
        let watch = Arc::new(watch);
        locked(&WATCHES).push(watch.clone());
        Recording(watch)
    }

    /// What was done so far, in order. What has failed is not among it.
    pub fn operations(&self) -> Vec<Operation> {
        locked(&self.0.operations).clone()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        locked(&WATCHES).retain(|watch| !Arc::ptr_eq(watch, &self.0));
    }
}

impl Operation {
    /// The file or folder that it is about.
    pub fn path(&self) -> &Path {
        use Operation::*;
        match self {
            Create(path) | Write(path) | SyncFile(path) | CreateFolder(path) | SyncFolder(path) => path,
            Rename(_, to) | Link(_, to) | Exchange(_, to) => to,
        }
    }
}

/// Does it, unless it is to fail, and records it if it went well.
pub(crate) fn observed<T>(
    operation: impl FnOnce() -> Operation,
    act: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let operation = operation();
    let mut watches: Vec<Arc<Watch>> = locked(&WATCHES).clone();
    watches.retain(|watch| operation.path().starts_with(&watch.place));
    if let Some(error) = watches.iter().find_map(|watch| (watch.fails)(&operation)) {
        return Err(error);
    }
    let done = act()?;
    watches.iter().for_each(|watch| locked(&watch.operations).push(operation.clone()));
    Ok(done)
}

/// What a power failure could show that must not be seen, in words; none if the order is right.
///
/// - A file or folder gets its name only after its own bytes, and the names in it, are durable.
/// - A name that `seals` says that everything before it is there (a checkpoint that steps lead to, a summary)
///   is given only after all bytes of the place, but for other drafts, are durable that were written before
///   its draft was made.
/// - At the end every name that was given is durable.
pub fn mistakes(operations: &[Operation], seals: impl Fn(&Path) -> bool) -> Vec<String> {
    use Operation::*;
    let mut state = State::default();
    for (at, operation) in operations.iter().enumerate() {
        match operation {
            Create(path) | CreateFolder(path) => {
                state.made.insert(path.clone(), at);
                state.named(path);
            }
            Write(path) => drop(state.unsynced.entry(path.clone()).or_insert(at)),
            SyncFile(path) => drop(state.unsynced.remove(path)),
            SyncFolder(path) => drop(state.names.remove(path)),
            Rename(from, to) | Exchange(from, to) | Link(from, to) => {
                state.is_ready(from, to);
                if seals(to) {
                    state.is_sealed(from, to);
                }
                if !matches!(operation, Link(..)) {
                    state.forget(from);
                }
                state.named(to);
            }
        }
    }
    for name in state.names.values().flatten() {
        // A draft has been removed meanwhile.
        if name.symlink_metadata().is_ok() {
            state.mistakes.push(format!("{} has a name that is not durable", name.display()));
        }
    }
    state.mistakes
}

#[derive(Default)]
struct State {
    /// Files with bytes that are not durable, and when the first of those were written.
    unsynced: BTreeMap<PathBuf, usize>,
    /// When files and folders were made.
    made: BTreeMap<PathBuf, usize>,
    /// Names that are not durable, by folder.
    names: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    mistakes: Vec<String>,
}

impl State {
    fn named(&mut self, path: &Path) {
        let folder = path.parent().unwrap_or(path);
        self.names.entry(folder.into()).or_default().insert(path.into());
    }

    /// What a name is given to must be durable.
    fn is_ready(&mut self, from: &Path, to: &Path) {
        let unsynced = self.unsynced.keys().find(|file| file.starts_with(from));
        let unnamed = self.names.iter().filter(|(folder, _)| folder.starts_with(from));
        let unnamed = unnamed.flat_map(|(_, names)| names).next();
        for (path, what) in [(unsynced, "bytes"), (unnamed, "name")] {
            if let Some(path) = path {
                let (to, path) = (to.display(), path.display());
                self.mistakes.push(format!("{to} gets its name before the {what} of {path} are durable"));
            }
        }
    }

    /// Everything from before the draft must be durable.
    fn is_sealed(&mut self, draft: &Path, to: &Path) {
        let made = self.made.get(draft).copied().unwrap_or(usize::MAX);
        let late = self.unsynced.iter().filter(|(_, written)| **written < made).map(|(file, _)| file);
        // Another thread may write a draft of its own meanwhile, which says nothing yet.
        let late = late.filter(|file| !is_of_draft(file));
        let words =
            |file: &PathBuf| format!("{} is there before the bytes of {}", to.display(), file.display());
        self.mistakes.extend(late.map(words));
    }

    fn forget(&mut self, path: &Path) {
        if let Some(names) = path.parent().and_then(|folder| self.names.get_mut(folder)) {
            names.remove(path);
        }
    }
}

/// Whether it is a draft, `.<name>.part`, or a file in one.
fn is_of_draft(file: &Path) -> bool {
    let names = file.iter().map(|name| name.to_string_lossy());
    names.into_iter().any(|name| name.starts_with('.') && name.ends_with(".part"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{append, create_folder, create_folders, rename, replace, sync_file, sync_folder, write};

    type Writes = fn(&Path) -> io::Result<()>;

    /// Each of the orders that are wrong, and those that are right.
    #[test]
    fn a_wrong_order_is_found() {
        let table: [(&str, Writes, &[&str]); 8] = [
            ("a file in a folder", |place| replace(&place.join("a"), b"1"), &[]),
            ("folders", |place| create_folders(&place.join("a/b/c")), &[]),
            (
                "a folder with a file",
                |place| {
                    create_folder(&place.join(".draft"))?;
                    write(&place.join(".draft/a"), b"1")?;
                    sync_folder(&place.join(".draft"))?;
                    rename(&place.join(".draft"), &place.join("sealed"))?;
                    sync_folder(place)
                },
                &[],
            ),
            (
                "no folder synced",
                |place| write(&place.join("a"), b"1"),
                &["a has a name that is not durable"],
            ),
            (
                "no file synced",
                |place| {
                    append(&place.join(".a"), b"", b"1")?;
                    rename(&place.join(".a"), &place.join("a"))?;
                    sync_folder(place)
                },
                &["before the bytes of"],
            ),
            (
                "names in a folder not synced",
                |place| {
                    create_folder(&place.join(".draft"))?;
                    write(&place.join(".draft/a"), b"1")?;
                    rename(&place.join(".draft"), &place.join("b"))?;
                    sync_folder(place)
                },
                &["before the name of"],
            ),
            (
                "lines behind their seal",
                |place| {
                    append(&place.join("lines"), b"", b"1\n")?;
                    replace(&place.join("sealed"), b"1")?;
                    sync_file(&place.join("lines"))
                },
                &["is there before the bytes of"],
            ),
            (
                "lines before their seal",
                |place| {
                    append(&place.join("lines"), b"", b"1\n")?;
                    sync_file(&place.join("lines"))?;
                    replace(&place.join("sealed"), b"1")
                },
                &[],
            ),
        ];
        for (name, writes, expected) in table {
            let place = tempfile::tempdir().unwrap();
            let recording = Recording::of(place.path());
            writes(place.path()).unwrap();
            let found = mistakes(&recording.operations(), |path| path.ends_with("sealed"));
            assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
            assert!(
                found.iter().zip(expected).all(|(found, words)| found.contains(words)),
                "{name}: {found:?}"
            );
        }
    }
}
