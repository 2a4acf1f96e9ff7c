//! Collectives that have been started and not been waited for.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use crate::element::Element;
use crate::memory::Buffer;
use kolo_rendezvous::Error;

/// A collective that has been started.
#[must_use = "a collective is only over when it has been waited for"]
pub struct Pending<T> {
    result: Receiver<Outcome<T>>,
    ready: Option<Outcome<T>>,
}

/// When a collective ran.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// When its first step began.
    pub started: Instant,
    /// When the buffer was this rank's again.
    pub ended: Instant,
}

/// How a collective ends.
pub(crate) type Outcome<T> = Result<(Buffer<T>, Timing), Error>;

impl<T: Element> Pending<T> {
    pub(crate) fn new() -> (Sender<Outcome<T>>, Self) {
        let (sender, result) = mpsc::channel();
        (sender, Pending { result, ready: None })
    }

    /// Waits for the end and gives the buffer back.
    ///
    /// # Errors
    ///
    /// What ended the collective: the first failure of the group.
    pub fn wait(self) -> Result<Buffer<T>, Error> {
        self.wait_timed().map(|(buffer, _)| buffer)
    }

    /// As [`Pending::wait`], and says when the collective ran.
    ///
    /// # Errors
    ///
    /// As [`Pending::wait`].
    pub fn wait_timed(self) -> Result<(Buffer<T>, Timing), Error> {
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
