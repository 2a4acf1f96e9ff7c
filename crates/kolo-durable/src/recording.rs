//! For tests: records the order in which files are written, synced and renamed, and checks it.
//!
//! A [`Recording`] sees the operations of all threads of the process below a folder. [`mistakes`] finds
//! what a power failure could show: a name that is not durable, or one that leads to bytes that are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::operation::Operation;

/// The operations of one recording, and the failures that it injects.
struct Watch {
    place: PathBuf,
    operations: Mutex<Vec<Operation>>,
    fails: Box<Fails>,
}

/// Returns the error with which an operation must fail.
type Fails = dyn Fn(&Operation) -> Option<io::Error> + Send + Sync;

static WATCHES: Mutex<Vec<Arc<Watch>>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A failed test must not make others fail.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records operations until it is dropped.
pub struct Recording(Arc<Watch>);

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").finish_non_exhaustive()
    }
}

impl Recording {
    /// Records the operations below a folder.
    pub fn of(place: &Path) -> Self {
        Self::failing(place, |_| None)
    }

    /// Records as [`Recording::of`] does; operations for which `fails` returns an error fail without effect.
    pub fn failing(
        place: &Path,
        fails: impl Fn(&Operation) -> Option<io::Error> + Send + Sync + 'static,
    ) -> Self {
        let watch = Watch { place: place.into(), operations: Mutex::default(), fails: Box::new(fails) };
        let watch = Arc::new(watch);
        locked(&WATCHES).push(watch.clone());
        Recording(watch)
    }

    /// Returns the operations so far, in order, without failed ones.
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
    /// Path of the file or folder that the operation affects.
    pub fn path(&self) -> &Path {
        use Operation::*;
        match self {
            Create(path) | Write(path) | SyncFile(path) | CreateFolder(path) | SyncFolder(path) => path,
            Rename(_, to) | Link(_, to) | Exchange(_, to) => to,
        }
    }
}

/// Runs an operation unless it must fail, and records it if it succeeds.
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

/// Describes the states that a power failure must not show but could; empty if the order is right.
///
/// - A file or folder gets its name only after its own bytes, and the names in it, are durable.
/// - A name for which `seals` returns true promises that everything before it is there (a checkpoint that
///   steps lead to, a summary). It is given only after all bytes that were written before its draft was
///   created are durable, except those of other drafts.
/// - At the end every given name is durable.
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
        // A missing name belongs to a draft that has been removed.
        if name.symlink_metadata().is_ok() {
            state.mistakes.push(format!("{} has a name that is not durable", name.display()));
        }
    }
    state.mistakes
}

#[derive(Default)]
struct State {
    /// Files with bytes that are not durable, and the first of the operations that wrote those.
    unsynced: BTreeMap<PathBuf, usize>,
    /// Operations that created the files and folders.
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

    /// Checks that the file or folder that gets a name is durable.
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

    /// Checks that everything from before the draft is durable.
    fn is_sealed(&mut self, draft: &Path, to: &Path) {
        let made = self.made.get(draft).copied().unwrap_or(usize::MAX);
        let late = self.unsynced.iter().filter(|(_, written)| **written < made).map(|(file, _)| file);
        // Another thread may be writing its own draft, which promises nothing yet.
        let late = late.filter(|file| !is_of_draft(file));
        let message =
            |file: &PathBuf| format!("{} is there before the bytes of {}", to.display(), file.display());
        self.mistakes.extend(late.map(message));
    }

    fn forget(&mut self, path: &Path) {
        if let Some(names) = path.parent().and_then(|folder| self.names.get_mut(folder)) {
            names.remove(path);
        }
    }
}

/// Returns true for a draft, `.<name>.part`, or a file in one.
fn is_of_draft(file: &Path) -> bool {
    let names = file.iter().map(|name| name.to_string_lossy());
    names.into_iter().any(|name| name.starts_with('.') && name.ends_with(".part"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{append, create_folder, create_folders, rename, replace, sync_file, sync_folder, write};

    type Writes = fn(&Path) -> io::Result<()>;

    /// Tests all wrong orders, and right ones.
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
                found.iter().zip(expected).all(|(found, message)| found.contains(message)),
                "{name}: {found:?}"
            );
        }
    }
}
