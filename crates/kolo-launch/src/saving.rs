//! Workers that save the run when the time for their end is over.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time without a written byte after which a worker that saves is ended all the same. A disk may sync a large
/// file for minutes.
const STALLED: Duration = Duration::from_secs(600);

/// Progress of the workers that save, by their process ids.
#[derive(Debug, Default)]
pub(crate) struct Savers(HashMap<i32, Progress>);

#[derive(Debug)]
struct Progress {
    written: u64,
    /// Time at which `written` was new.
    since: Instant,
}

impl Savers {
    /// Returns true if a worker saves, by its note, and has written something lately.
    pub(crate) fn makes_progress(&mut self, pid: i32, note: &Path, now: Instant) -> bool {
        note.exists() && self.has_written(pid, written(pid), now)
    }

    fn has_written(&mut self, pid: i32, written: u64, now: Instant) -> bool {
        let last = self.0.entry(pid).or_insert(Progress { written, since: now });
        if last.written != written {
            *last = Progress { written, since: now };
        }
        now.saturating_duration_since(last.since) < STALLED
    }
}

/// Returns the number of bytes that a process has written to files so far.
fn written(pid: i32) -> u64 {
    let counters = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let counter = |name: &str| counters.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    counter("wchar:").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_writes_nothing_for_long_does_not_save() {
        let (mut savers, start) = (Savers::default(), Instant::now());
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        for (minutes, written, is_saving) in
            [(0, 5, true), (9, 5, true), (11, 5, false), (12, 6, true), (21, 6, true), (22, 6, false)]
        {
            assert_eq!(savers.has_written(7, written, at(minutes)), is_saving, "after {minutes} minutes");
        }
        assert!(savers.has_written(8, 0, at(30)), "another worker");
    }

    #[test]
    fn a_process_without_a_note_does_not_save() {
        let folder = tempfile::tempdir().unwrap();
        let (pid, now) = (std::process::id() as i32, Instant::now());
        let note = folder.path().join("note");
        assert!(!Savers::default().makes_progress(pid, &note, now));
        let before = written(pid);
        std::fs::write(&note, [0; 1000]).unwrap();
        assert!(Savers::default().makes_progress(pid, &note, now));
        assert!(written(pid) >= before + 1000);
    }
}
