//! A worker's note to its launcher that it saves the run at the end, so that the launcher waits for it.

use std::fs;
use std::path::{Path, PathBuf};

use kolo_rendezvous::env::ERROR_FILE;

use crate::MEMBER;

/// Ending of the note's name, in place of that of the worker's error file.
const ENDING: &str = "saving";

/// Note that this process saves the run, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Saving(Option<PathBuf>);

/// Tells Kolo's launcher that this process saves the run from now on, until the result is dropped. The
/// launcher then waits beyond the time in which workers are to end, as long as this process writes.
pub fn saving() -> Saving {
    let file = std::env::var_os(ERROR_FILE).filter(|file| !file.is_empty());
    let file = file.filter(|_| std::env::var_os(MEMBER).is_some());
    Saving::noted(file.map(|file| note_of(Path::new(&file))))
}

/// Path of the note of a worker with this error file.
pub fn note_of(error_file: &Path) -> PathBuf {
    error_file.with_extension(ENDING)
}

impl Saving {
    fn noted(note: Option<PathBuf>) -> Self {
        // Without the note the launcher waits as long as for any worker.
        Saving(note.filter(|note| fs::write(note, "").is_ok()))
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        // A note that stays counts as long as its process writes.
        self.0.iter().for_each(|note| drop(fs::remove_file(note)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_is_there_while_the_process_saves() {
        let folder = tempfile::tempdir().unwrap();
        let note = note_of(&folder.path().join("rank-0.0.json"));
        let saving = Saving::noted(Some(note.clone()));
        assert!(note.exists() && note.ends_with("rank-0.0.saving"));
        drop(saving);
        assert!(!note.exists());
        assert!(Saving::noted(Some(folder.path().join("none/note"))).0.is_none());
    }
}
