//! A file to which lines are added while a run goes on. A full disk does not end a training: what cannot be
//! written waits in memory for the next try, and nothing is written in part or twice.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::error::Error;

/// Bytes that may wait before somebody asks for them to be written.
const ENOUGH: usize = 8 << 10;

/// See the module's text.
pub(crate) struct Lines {
    path: PathBuf,
    /// The first line of a new file.
    header: &'static str,
    waiting: String,
    /// Tried when as many bytes wait.
    next_try: usize,
}

impl Lines {
    /// A file that may be there or not.
    pub(crate) fn at(path: PathBuf, header: &'static str) -> Self {
        Lines { path, header, waiting: String::new(), next_try: ENOUGH }
    }

    /// Makes the file if it is not there.
    pub(crate) fn make(&self) -> Result<(), Error> {
        self.file().map(drop).map_err(|e| Error::file(&self.path, e))
    }

    /// Drops what waits.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
        self.next_try = ENOUGH;
    }

    /// Adds a line, which is written now or later.
    pub(crate) fn add(&mut self, line: &str) {
        self.waiting += line;
        self.waiting.push('\n');
        if self.waiting.len() >= self.next_try {
            self.flush();
        }
    }

    /// Writes what waits. If that fails it is told, and tried again later.
    pub(crate) fn flush(&mut self) {
        if let Err(error) = self.write() {
            log::warn!("{}: {error}; training goes on and tries again later", self.path.display());
        }
    }

    /// Whether there is something to be written.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes what waits.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.write().map_err(|e| Error::file(&self.path, e))
    }

    fn write(&mut self) -> Result<(), io::Error> {
        let result = self.file().and_then(|mut file| {
            let before = file.metadata()?.len();
            let header = if before == 0 && !self.header.is_empty() {
                format!("{}\n", self.header)
            } else {
                String::new()
            };
            let written = file.write_all((header + &self.waiting).as_bytes());
            if written.is_err() {
                // Half a line would be the next one's beginning.
                let _ = file.set_len(before);
            }
            written
        });
        if result.is_ok() {
            self.waiting.clear();
        }
        self.next_try = self.waiting.len() + ENOUGH;
        result
    }

    /// Opened for each write, because the folder may have been away meanwhile.
    fn file(&self) -> Result<File, io::Error> {
        OpenOptions::new().create(true).append(true).open(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (place, away) = (folder.path().join("run"), folder.path().join("away"));
        std::fs::create_dir(&place).unwrap();
        let mut lines = Lines::at(place.join("a.csv"), "head");
        lines.add("1");
        lines.flush();
        std::fs::rename(&place, &away).unwrap();
        lines.add("2");
        lines.flush();
        std::fs::rename(&away, &place).unwrap();
        lines.flush();
        lines.add("never");
        lines.forget();
        lines.add("3");
        lines.end().unwrap();
        assert_eq!(std::fs::read_to_string(place.join("a.csv")).unwrap(), "head\n1\n2\n3\n");
    }

    #[test]
    fn a_full_disk_is_told_at_the_end() {
        let mut lines = Lines::at("/dev/full".into(), "");
        (0..ENOUGH).for_each(|_| lines.add("line"));
        assert_eq!(lines.waiting.len(), 5 * ENOUGH);
        let error = format!("{:?}", lines.end().unwrap_err());
        assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
    }
}
