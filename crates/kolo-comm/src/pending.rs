//! Handles of started collectives.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use kolo_rendezvous::Error;

/// Work that has been started on the communication thread: one collective, which returns its buffer, or
/// several stages, which return their result.
#[must_use = "a collective is only over when it has been waited for"]
pub struct Pending<R> {
    result: Receiver<Outcome<R>>,
    ready: Option<Outcome<R>>,
}

kolo_schedule::opaque_debug!([R] Pending<R>);

/// Start and end of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time at which its first step began.
    pub started: Instant,
    /// Time at which the buffer belonged to this rank again.
    pub ended: Instant,
}

/// Result of a collective or of stages.
pub(crate) type Outcome<R> = Result<(R, Timing), Error>;

impl<R> Pending<R> {
    pub(crate) fn new() -> (Sender<Outcome<R>>, Self) {
        let (sender, result) = mpsc::channel();
        (sender, Pending { result, ready: None })
    }

    /// Waits for the end and returns the result; a collective's result is its buffer.
    ///
    /// # Errors
    ///
    /// The error that ended the collective: the first failure of the group.
    pub fn wait(self) -> Result<R, Error> {
        self.wait_timed().map(|(result, _)| result)
    }

    /// Waits as [`Pending::wait`] does, and also returns when the collective ran. Fails as [`Pending::wait`]
    /// does.
    pub fn wait_timed(self) -> Result<(R, Timing), Error> {
        let lost = |_| Err(Error::CommThreadPanicked);
        self.ready.unwrap_or_else(|| self.result.recv().unwrap_or_else(lost))
    }

    /// Returns true if the work is over, so waiting returns at once.
    pub fn is_over(&mut self) -> bool {
        if self.ready.is_none() {
            self.ready = self.result.try_recv().ok();
        }
        self.ready.is_some()
    }
}
