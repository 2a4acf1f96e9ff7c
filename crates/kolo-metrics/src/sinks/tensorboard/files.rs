//! The event files of a run: one for each process that wrote it, and one more after each move back.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kolo_recipe::RunFolder;
use kolo_run_folder::unix_seconds;
use prost::Message;

use super::event::Event;
use super::record::{frame, records};
use kolo_recipe::Error;

pub(super) const FOLDER: &str = "tensorboard";
/// Prefix by which TensorBoard recognizes an event file.
const PREFIX: &str = "events.out.tfevents.";
/// Suffix by which Kolo recognizes its own files.
const SUFFIX: &str = ".kolo";

/// The event files of a run, and the waiting bytes of the newest.
pub(super) struct EventFiles {
    run: RunFolder,
    folder: PathBuf,
    /// This process's file, once it has one.
    own: Option<PathBuf>,
    waiting: Vec<u8>,
}

impl EventFiles {
    pub(super) fn new(run: &RunFolder) -> Self {
        EventFiles { run: run.clone(), folder: run.path().join(FOLDER), own: None, waiting: Vec::new() }
    }

    /// Adds an event, which the next [`EventFiles::flush`] writes.
    pub(super) fn add(&mut self, event: &Event) {
        self.waiting.extend(frame(&event.encode_to_vec()));
    }

    /// Drops the waiting events, and those events of all files that `keep` rejects. Returns the others.
    /// Further events go to a new file, after `start`, unless this process wrote the last one and nothing was
    /// dropped.
    pub(super) fn rewind(&mut self, start: u64, keep: impl Fn(&Event) -> bool) -> Result<Vec<Event>, Error> {
        self.waiting.clear();
        self.run.check()?;
        let (files, mut kept, mut is_changed) = (self.list()?, Vec::new(), false);
        for path in &files {
            is_changed |= rewind(&self.run, path, &keep, &mut kept)?;
        }
        if is_changed || self.own.is_none() || files.last() != self.own.as_ref() {
            self.own = Some(self.next(&files));
            self.add(&Event::version());
            if !files.is_empty() {
                self.add(&Event::start(start));
            }
        }
        Ok(kept)
    }

    /// Writes the waiting events. After a failure they wait for the next try.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let Some(path) = self.own.as_ref().filter(|_| !self.waiting.is_empty()) else { return Ok(()) };
        self.run.check()?;
        match kolo_durable::create_folder(&self.folder) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(Error::file(&self.folder, e)),
            _ => {}
        }
        self.run.append(path, b"", &self.waiting)?;
        self.waiting.clear();
        Ok(())
    }

    /// Returns the files that Kolo has written, in the order in which TensorBoard reads them.
    fn list(&self) -> Result<Vec<PathBuf>, Error> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::file(&self.folder, e))?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> = paths.filter(|path| seconds(path).is_some()).collect();
        files.sort();
        Ok(files)
    }

    /// Returns a new file's path, after all others: TensorBoard reads files in the order of their names.
    fn next(&self, files: &[PathBuf]) -> PathBuf {
        let now = unix_seconds(SystemTime::now()) as u64;
        let after =
            files.iter().filter_map(|path| seconds(path)).max().map_or(0, |last| last.saturating_add(1));
        let host = rustix::system::uname().nodename().to_string_lossy().replace(['/', '\0'], "-");
        let process = std::process::id();
        self.folder.join(format!("{PREFIX}{:010}.{host}.{process}{SUFFIX}", now.max(after)))
    }
}

/// Start time of one of Kolo's files, from its name.
fn seconds(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split('.').next()?.parse().ok()
}

/// Drops the events of a file that `keep` rejects, and all bytes behind a damaged one. Returns true if there
/// were any.
fn rewind(
    run: &RunFolder,
    path: &Path,
    keep: impl Fn(&Event) -> bool,
    kept: &mut Vec<Event>,
) -> Result<bool, Error> {
    let file = kolo_durable::read(path).map_err(|e| Error::file(path, e))?;
    let mut left = Vec::new();
    for (record, data) in records(&file) {
        let Some(event) = Event::decode(data).ok().filter(&keep) else { continue };
        left.extend_from_slice(record);
        kept.push(event);
    }
    // A full disk has no room for a copy: usually nothing must be dropped, or only the last events.
    if file.starts_with(&left) && file.len() > left.len() {
        kolo_durable::truncate(path, left.len() as u64).map_err(|e| Error::file(path, e))?;
    } else if file != left {
        run.write(path, &left)?;
    }
    Ok(file != left)
}
