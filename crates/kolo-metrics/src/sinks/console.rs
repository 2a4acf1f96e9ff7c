//! The output of rank 0 during a training, written by a thread of its own.
//!
//! The output may have no reader: a closed pipe (`| head -1`), a full disk, a terminal that was closed. Or
//! its reader may stall: a terminal stopped by Ctrl-S, a slow network beneath ssh. The training thread waits
//! for none of them, because the other ranks would take it for hung; a line that cannot be written is lost,
//! and the run continues.

use std::convert::Infallible;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Most pieces of text that may wait; further ones are dropped.
const QUEUE: usize = 1024;
/// Longest wait for the remaining pieces at the end of a run.
const LAST: Duration = Duration::from_secs(5);

enum Piece {
    /// A line on standard error, above the bar if there is one.
    Line(String),
    /// A bar on standard error that ends at a step, if that is a terminal.
    Bar { done: u64, total: u64 },
    /// So many steps are done; `line` describes them.
    Done { steps: u64, line: String },
    /// Lines on standard output, with their ends, after the bar has gone.
    Result(String),
}

/// Writes in order; on drop, it waits for a moment until all is written.
pub(super) struct Console {
    /// `None` at the end, or without a thread.
    pieces: Option<SyncSender<Piece>>,
    /// Hangs up when the thread has ended.
    ended: Receiver<Infallible>,
}

impl Console {
    pub(super) fn open() -> Console {
        let (pieces, waiting) = sync_channel(QUEUE);
        let (working, ended) = channel::<Infallible>();
        let write = move || {
            let _working = working;
            let mut bar = None;
            waiting.iter().for_each(|piece| write(piece, &mut bar));
            remove(&mut bar);
        };
        let thread = std::thread::Builder::new().name("kolo-console".into()).spawn(write);
        Console { pieces: thread.is_ok().then_some(pieces), ended }
    }

    pub(super) fn say(&self, line: impl Into<String>) {
        self.send(Piece::Line(line.into()));
    }

    /// Begins to show progress, as a bar on a terminal.
    pub(super) fn show_progress(&self, done: u64, total: u64) {
        self.send(Piece::Bar { done, total });
    }

    /// Shows progress, if there is a bar.
    pub(super) fn progress(&self, steps: u64, line: String) {
        self.send(Piece::Done { steps, line });
    }

    /// Writes lines, with their ends, on standard output.
    pub(super) fn result(&self, lines: String) {
        self.send(Piece::Result(lines));
    }

    fn send(&self, piece: Piece) {
        if let Some(pieces) = &self.pieces {
            // The queue is full only without a reader.
            let _ = pieces.try_send(piece);
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.pieces = None;
        // The channel never carries a message: it hangs up, or the time is over.
        let _ = self.ended.recv_timeout(LAST);
    }
}

/// Writes a piece. A failed write is ignored.
fn write(piece: Piece, bar: &mut Option<ProgressBar>) {
    match (piece, &bar) {
        (Piece::Line(line), Some(bar)) => bar.println(line),
        // In one write: workers of another launcher may share standard error.
        (Piece::Line(line), None) => drop(std::io::stderr().write_all((line + "\n").as_bytes())),
        (Piece::Bar { done, total }, _) => {
            *bar = std::io::stderr().is_terminal().then(|| self::bar(done, total));
        }
        (Piece::Done { steps, line }, Some(bar)) => {
            bar.set_position(steps);
            bar.set_message(line);
        }
        (Piece::Done { .. }, None) => {}
        (Piece::Result(lines), _) => {
            remove(bar);
            let _ = std::io::stdout().write_all(lines.as_bytes());
        }
    }
}

fn bar(done: u64, total: u64) -> ProgressBar {
    let style = "{msg}\n[{elapsed_precise}] {wide_bar} {pos}/{len} steps";
    let bar = ProgressBar::new(total).with_position(done);
    // The template is a constant; if it were wrong, indicatif's own would do.
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn remove(bar: &mut Option<ProgressBar>) {
    if let Some(bar) = bar.take() {
        bar.finish_and_clear();
    }
}
