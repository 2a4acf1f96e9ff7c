//! A file that grows by lines during a run. A full disk does not end a training: failed writes wait in memory
//! for the next try, and no line is written in part or twice.

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kolo_ddp::checkpoint::tell;
use kolo_recipe::{Error, RunFolder};

/// Bytes that may wait before an automatic write.
const ENOUGH: usize = 8 << 10;

const LONGEST: Duration = Duration::from_secs(1);

/// Lines of a file, of which the last ones wait to be written.
pub(super) struct AppendFile {
    folder: RunFolder,
    path: PathBuf,
    /// First line of a new file; it ends in a line break, or is empty.
    header: String,
    waiting: String,
    /// Waiting bytes at which the next try is due.
    next_try: usize,
    tried: Instant,
}

/// Returns the step of a line that is a JSON object.
pub(super) fn step_of(line: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64()
}

/// Reports rows that a file has lost and that this worker does not know, by their numbers, if there are any.
pub(super) fn report_lost(file: &str, rows: &str, lost: RangeInclusive<u64>) {
    let (first, last) = lost.clone().into_inner();
    if !lost.is_empty() {
        let which = if first == last {
            format!("row of {rows} {first}")
        } else {
            format!("rows of {rows}s {first} to {last}")
        };
        tell(&format_args!("{file} has lost its {which}; the weights do not depend on it"));
    }
}

impl AppendFile {
    /// Makes the lines of a file that may exist or not.
    pub(super) fn new(folder: &RunFolder, name: &str, header: impl Into<String>) -> Self {
        let path = folder.path().join(name);
        let header = header.into();
        AppendFile {
            folder: folder.clone(),
            path,
            header,
            waiting: String::new(),
            next_try: ENOUGH,
            tried: Instant::now(),
        }
    }

    /// Adds a line, which is written now or later.
    /// If the write that is due fails, the line waits.
    pub(super) fn add(&mut self, line: &str) -> Result<(), Error> {
        self.waiting += line;
        self.waiting.push('\n');
        let is_time = self.waiting.len() >= self.next_try || self.tried.elapsed() >= LONGEST;
        if is_time { self.flush() } else { Ok(()) }
    }

    /// Writes the waiting lines, and makes a missing file, unless another process writes the folder.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.tried = Instant::now();
        let written = self.folder.append(&self.path, self.header.as_bytes(), self.waiting.as_bytes());
        if written.is_ok() {
            self.waiting.clear();
        }
        self.next_try = self.waiting.len() + ENOUGH;
        written
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Drops the waiting lines, the lines after the header that `keep` rejects, and a last line without an
    /// end, which may be incomplete. Returns the other lines, without the header.
    pub(super) fn rewind(&mut self, keep: impl Fn(&str) -> bool) -> Result<String, Error> {
        self.waiting.clear();
        self.next_try = ENOUGH;
        self.folder.check()?;
        let text = match kolo_durable::read_to_string(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(|e| Error::file(&self.path, e))?,
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        // The header may have several lines, and be cut after one of them.
        let (header, lines) = match whole.strip_prefix(&*self.header) {
            Some(lines) => (&*self.header, lines),
            None if self.header.starts_with(whole) => ("", ""),
            None => ("", whole),
        };
        let lines: String = lines.lines().filter(|line| keep(line)).flat_map(|line| [line, "\n"]).collect();
        let kept = format!("{header}{lines}");
        // A full disk has no room for a copy: usually nothing must be dropped, or only the last lines.
        if text.starts_with(&kept) && kept != text {
            kolo_durable::truncate(&self.path, kept.len() as u64).map_err(|e| Error::file(&self.path, e))?;
        } else if kept != text {
            self.folder.write(&self.path, kept.as_bytes())?;
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kolo_recipe::Error::FolderGone;

    use super::*;

    #[test]
    fn what_cannot_be_written_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (place, away) = (folder.path().join("run"), folder.path().join("away"));
        fs::create_dir(&place).unwrap();
        let mut lines = AppendFile::new(&RunFolder::at(place.clone()), "a.csv", "head\n");
        lines.add("1").unwrap();
        lines.flush().unwrap();
        fs::rename(&place, &away).unwrap();
        lines.add("2").unwrap();
        assert!(lines.flush().unwrap_err().to_string().contains("a.csv"));
        assert!(lines.is_waiting() && matches!(lines.rewind(|_| true), Err(FolderGone { .. })));
        lines.add("2").unwrap();
        fs::rename(&away, &place).unwrap();
        lines.flush().unwrap();
        lines.add("never").unwrap();
        assert_eq!(lines.rewind(|line| line != "2").unwrap(), "1\n");
        lines.add("3").unwrap();
        lines.flush().unwrap();
        assert_eq!(fs::read_to_string(place.join("a.csv")).unwrap(), "head\n1\n3\n");
    }

    #[test]
    fn the_last_lines_are_dropped_without_a_copy() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a");
        // No copy can be written.
        fs::create_dir(place.path().join(".a.part")).unwrap();
        let mut lines = AppendFile::new(&RunFolder::at(place.path().into()), "a", "");
        fs::write(&path, "1\n2\n3\nhal").unwrap();
        assert_eq!(lines.rewind(|line| line != "3" && line != "hal").unwrap(), "1\n2\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        lines.rewind(|line| line != "1").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
    }

    #[test]
    fn a_line_without_an_end_is_no_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.csv");
        let mut lines = AppendFile::new(&RunFolder::at(place.path().into()), "a.csv", "head\n");
        // Its rest would be a row of another number.
        for (cut, whole) in
            [("head\n1,0.5\n2,0.1", "head\n1,0.5\n"), ("hea", ""), ("head\n1,0.5\n", "head\n1,0.5\n")]
        {
            fs::write(&path, cut).unwrap();
            assert_eq!(lines.rewind(|_| true).unwrap(), whole.trim_start_matches("head\n"));
            assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        }
        fs::write(&path, "head\n1,0.5\n2,0.1").unwrap();
        lines.rewind(|_| true).unwrap();
        lines.add("2,0.125").unwrap();
        lines.flush().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "head\n1,0.5\n2,0.125\n");
    }

    #[test]
    fn a_header_of_several_lines_is_whole_or_none() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.csv");
        let mut lines = AppendFile::new(&RunFolder::at(place.path().into()), "a.csv", "a,\"b\n9,c\"\n");
        for (text, kept) in [("a,\"b\n", ""), ("a,\"b\n9,c\"\n", ""), ("a,\"b\n9,c\"\n1,2\n9,3\n", "1,2\n")] {
            fs::write(&path, text).unwrap();
            assert_eq!(lines.rewind(|line| !line.starts_with('9')).unwrap(), kept, "{text:?}");
            lines.flush().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("a,\"b\n9,c\"\n{kept}"), "{text:?}");
        }
    }

    #[test]
    fn a_full_disk_is_told_and_everything_waits() {
        let mut lines = AppendFile::new(&RunFolder::at("/dev".into()), "full", "");
        let failed = (0..ENOUGH).filter(|_| lines.add("line").is_err()).count();
        // A try for every `ENOUGH` bytes, not one for every line.
        assert_eq!((failed, lines.waiting.len()), (4, 5 * ENOUGH));
        let error = lines.flush().unwrap_err().to_string();
        assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
    }
}
