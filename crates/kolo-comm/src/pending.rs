//! Collectives that have been started and not been waited for.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use kolo_rendezvous::Error;

/// Something that has been started on the communication thread: one collective, which gives its buffer back,
/// or several stages, which give whatever they have made.
#[must_use = "a collective is only over when it has been waited for"]
pub struct Pending<R> {
    result: Receiver<Outcome<R>>,
    ready: Option<Outcome<R>>,
}

/// When a collective ran.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// When its first step began.
    pub started: Instant,
    /// When the buffer was this rank's again.
    pub ended: Instant,
}

/// How it ends.
pub(crate) type Outcome<R> = Result<(R, Timing), Error>;

impl<R> Pending<R> {
    pub(crate) fn new() -> (Sender<Outcome<R>>, Self) {
        let (sender, result) = mpsc::channel();
        (sender, Pending { result, ready: None })
    }

    /// Waits for the end and gives the result, of a collective its buffer.
    ///
    /// # Errors
    ///
    /// What ended the collective: the first failure of the group.
    pub fn wait(self) -> Result<R, Error> {
        self.wait_timed().map(|(result, _)| result)
    }

    /// As [`Pending::wait`], and says when the collective ran.
    ///
    /// # Errors
    ///
    /// As [`Pending::wait`].
    pub fn wait_timed(self) -> Result<(R, Timing), Error> {
        let lost = |_| Err(Error::CommThreadPanicked);
        self.ready.unwrap_or_else(|| self.result.recv().unwrap_or_else(lost))
    }

    /// Whether it is over, so that waiting returns at once.
    pub fn is_over(&mut self) -> bool {
        if self.ready.is_none() {
            self.ready = self.result.try_recv().ok();
        }
        self.ready.is_some()
    }
}
