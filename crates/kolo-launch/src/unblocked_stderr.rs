//! Standard error for those who must not wait for its reader.
//!
//! A reader may stall: a terminal stopped by Ctrl-S, a pipe that nobody reads. A launcher that waited for it
//! would serve its workers no longer, and a worker that waited would be taken for hung. So a thread writes,
//! and what does not fit into its queue is lost.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Most texts that may wait.
const QUEUE: usize = 1024;
/// Longest wait for the texts that are left at the end.
const LAST: Duration = Duration::from_millis(500);

enum Piece {
    Text(Vec<u8>),
    /// Hangs up when all earlier texts are written.
    Flush(Sender<()>),
}

/// The writing thread's queue; `None` if there is no thread.
static PIECES: OnceLock<Option<SyncSender<Piece>>> = OnceLock::new();

/// Standard error, written by a thread of its own. A write never waits and never fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnblockedStderr;

impl Write for UnblockedStderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match pieces() {
            // The queue is full only without a reader.
            Some(pieces) => drop(pieces.try_send(Piece::Text(text.into()))),
            None => drop(io::stderr().write_all(text)),
        }
        Ok(text.len())
    }

    /// Waits until all that this process has written is out, for half a second at most.
    fn flush(&mut self) -> io::Result<()> {
        let (written, waiting) = channel();
        if let Some(Some(pieces)) = PIECES.get()
            && pieces.try_send(Piece::Flush(written)).is_ok()
        {
            // The channel never carries a message: it hangs up, or the time is over.
            let _ = waiting.recv_timeout(LAST);
        }
        Ok(())
    }
}

fn pieces() -> Option<&'static SyncSender<Piece>> {
    let start = || {
        let (pieces, waiting) = sync_channel(QUEUE);
        let write = move || {
            for piece in waiting {
                match piece {
                    // In one write, because others write lines to the same file.
                    Piece::Text(text) => drop(io::stderr().write_all(&text)),
                    Piece::Flush(written) => drop(written),
                }
            }
        };
        let thread = std::thread::Builder::new().name("kolo-stderr".into()).spawn(write);
        thread.is_ok().then_some(pieces)
    };
    PIECES.get_or_init(start).as_ref()
}
