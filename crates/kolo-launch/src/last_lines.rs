//! The last lines of a worker's standard error: the only trace of a failure without a report.

use std::collections::VecDeque;

use crate::error_file::{WorkerError, printable};
use crate::named_rank::named_rank;

const LINES: usize = 32;
const LINE: usize = 1 << 10;
const SHOWN: usize = 4;

/// The last lines of a stream, in bounded memory. Frames of a backtrace are dropped, because they would
/// displace the lines before them.
#[derive(Debug, Default)]
pub(crate) struct LastLines {
    lines: VecDeque<String>,
    /// The unfinished line, at most [`LINE`] bytes.
    partial: Vec<u8>,
    in_backtrace: bool,
}

impl LastLines {
    /// Adds bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (body, ends) = match piece.split_last() {
                Some((b'\n', body)) => (body, true),
                _ => (piece, false),
            };
            let room = LINE - self.partial.len();
            self.partial.extend_from_slice(&body[..body.len().min(room)]);
            if ends {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let bytes = std::mem::take(&mut self.partial);
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end();
        if line == "stack backtrace:" {
            self.in_backtrace = true;
        } else if !line.starts_with(char::is_whitespace) {
            self.in_backtrace = false;
        }
        if self.in_backtrace || line.is_empty() || line.starts_with("note: ") {
            return;
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line.into());
    }

    /// Returns the last message of a failed worker: the lines from its last error or, if there is none, from
    /// its last line without indentation. `None` if it printed nothing.
    pub fn error(&mut self) -> Option<WorkerError> {
        if !self.partial.is_empty() {
            self.end_line();
        }
        let begins = |line: &String| line.starts_with("Error:") || line.starts_with("error:");
        let panics = |line: &String| line.starts_with("thread ") && line.contains("panicked at");
        let error_at = self.lines.iter().rposition(|line| begins(line) || panics(line));
        let last = self.lines.iter().rposition(|line| !line.starts_with(char::is_whitespace));
        let from = error_at.or(last).unwrap_or(0);
        let all = self.lines.iter().skip(from).map(String::as_str).collect::<Vec<_>>();
        let culprit = named_rank(&all.join("\n"));
        let message = printable(all[..all.len().min(SHOWN)].join("\n").trim());
        (!message.is_empty()).then_some(WorkerError { message, culprit, kind: None, reported: false })
    }
}

#[cfg(test)]
mod tests {
    use kolo_comm::Rank;

    use super::*;

    fn last_error(text: &str) -> (String, Option<usize>) {
        let read = |text: &[u8], piece| {
            let mut lines = LastLines::default();
            text.chunks(piece).for_each(|piece| lines.push(piece));
            lines.error()
        };
        let (whole, pieces) = (read(text.as_bytes(), text.len().max(1)), read(text.as_bytes(), 3));
        assert_eq!(whole, pieces, "{text}");
        whole.map_or((String::new(), None), |error| {
            assert!(!error.reported);
            (error.message, error.culprit.map(|Rank(rank)| rank))
        })
    }

    #[test]
    fn the_last_message_counts() {
        assert_eq!(last_error(""), (String::new(), None));
        assert_eq!(last_error("\n \n"), (String::new(), None));
        assert_eq!(last_error("one\ntwo"), ("two".into(), None));
        assert_eq!(
            last_error("Traceback\n  File \"a\"\nValueError: bad\n"),
            ("ValueError: bad".into(), None)
        );
        assert_eq!(last_error("rank 3 died, but others went on\nno space\n"), ("no space".into(), None));
    }

    #[test]
    fn an_error_is_kept_with_its_causes() {
        let text = "step 3\nError: epoch 2\n\nCaused by:\n    rank 3 died\n";
        assert_eq!(last_error(text), ("Error: epoch 2\nCaused by:\n    rank 3 died".into(), Some(3)));
        let debug = "Error: Comm(Timeout { rank: Rank(1), during: \"all-reduce\", waited: 5s })\n";
        assert_eq!(last_error(debug), (debug.trim().into(), Some(1)));
    }

    #[test]
    fn a_panic_is_kept_without_its_backtrace() {
        let frames: String = (0..60).map(|n| format!("  {n:2}: frame\n          at file.rs:{n}\n")).collect();
        let head = "thread 'main' (7) panicked at src/main.rs:3:5:\nDied { rank: Rank(2) }";
        for tail in [
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n".into(),
            format!("stack backtrace:\n{frames}note: Some details are omitted\n"),
        ] {
            assert_eq!(last_error(&format!("starts\n{head}\n{tail}")), (head.to_string(), Some(2)));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut lines = LastLines::default();
        lines.push(&vec![b'x'; 10 * LINE]);
        (0..1000).for_each(|_| lines.push(b"y\n"));
        assert_eq!(lines.lines.len(), LINES);
        assert!(lines.partial.is_empty());
    }
}
