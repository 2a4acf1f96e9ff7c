//! Batches prepared ahead on a thread of their own, so that the training thread never waits for them.

use std::any::Any;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use thiserror::Error;

use crate::error::DataError;

/// Reason why no more batches come.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrefetchError {
    /// The thread could not be started.
    #[error("cannot start the thread that prepares batches: {0}")]
    Spawn(#[from] std::io::Error),
    /// The epoch has no step of this number.
    #[error("epoch {epoch} has no step {step}: its {steps} steps count from 0")]
    NoSuchStep {
        /// Epoch, from 0.
        epoch: usize,
        /// Step that was asked for, from 0.
        step: usize,
        /// Number of steps in the epoch.
        steps: usize,
    },
    /// The data set cannot prepare a sample.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The thread panicked, because of a bug in the requests or in the function that prepares them.
    #[error("the thread that prepares batches failed: {0}")]
    Panicked(String),
}

/// An iterator over batches in the order of their requests.
///
/// At most `depth` finished batches wait, and one more is being prepared. Dropping the iterator ends the
/// thread and waits for it.
#[derive(Debug)]
pub struct Prefetch<B> {
    batches: Option<Receiver<B>>,
    thread: Option<JoinHandle<()>>,
}

impl<B: Send + 'static> Prefetch<B> {
    /// Starts a thread on which `prepare` makes a batch for each request.
    ///
    /// # Errors
    ///
    /// [`PrefetchError::Spawn`] if the operating system cannot start a thread.
    pub fn new<R>(
        requests: impl IntoIterator<Item = R, IntoIter: Send> + Send + 'static,
        depth: usize,
        mut prepare: impl FnMut(R) -> B + Send + 'static,
    ) -> Result<Self, PrefetchError> {
        let (sender, batches) = sync_channel(depth.max(1));
        let thread = Builder::new().name("kolo-prefetch".into()).spawn(move || {
            for request in requests {
                if sender.send(prepare(request)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { batches: Some(batches), thread: Some(thread) })
    }
}

impl<B> Iterator for Prefetch<B> {
    type Item = Result<B, PrefetchError>;

    /// Returns the next batch; an error once if the thread failed; `None` after the last request.
    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(batch) = self.batches.as_ref()?.recv() {
            return Some(Ok(batch));
        }
        self.batches = None;
        match self.thread.take()?.join() {
            Ok(()) => None,
            Err(payload) => Some(Err(PrefetchError::Panicked(message(&*payload)))),
        }
    }
}

impl<B> Drop for Prefetch<B> {
    fn drop(&mut self) {
        // The receiver first: a thread that waits to send a batch then sees that the channel is closed.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has already printed the message of a panic.
            let _ = thread.join();
        }
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
        .into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Returns the square of a number below 10.
    fn prepare(number: usize) -> usize {
        [0, 1, 4, 9, 16, 25, 36, 49, 64, 81][number]
    }

    #[test]
    fn batches_come_in_order() {
        let prefetch = Prefetch::new([2, 0, 9], 2, prepare).unwrap();
        assert_eq!(prefetch.map(Result::unwrap).collect::<Vec<_>>(), [4, 0, 81]);
    }

    #[test]
    fn it_does_not_run_further_ahead_than_its_depth() {
        let requested = Arc::new(AtomicUsize::new(0));
        let counter = requested.clone();
        let requests = std::iter::repeat_with(move || {
            counter.fetch_add(1, Ordering::SeqCst);
            0
        });
        let mut prefetch = Prefetch::new(requests, 3, prepare).unwrap();
        prefetch.next().unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        // One batch taken, three waiting, one in preparation.
        assert!(requested.load(Ordering::SeqCst) <= 5, "{} requests taken", requested.load(Ordering::SeqCst));
    }

    #[test]
    fn a_panic_is_an_error_and_then_the_end() {
        let mut prefetch = Prefetch::new([0, 77], 2, prepare).unwrap();
        prefetch.next().unwrap().unwrap();
        let error = prefetch.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("index out of bounds") || error.contains("out of range"), "{error}");
        assert!(prefetch.next().is_none());
    }

    #[test]
    fn dropping_it_early_ends_the_thread() {
        let alive = Arc::new(());
        let held = alive.clone();
        let requests = std::iter::repeat_with(move || {
            let _ = &held;
            0
        });
        drop(Prefetch::new(requests, 2, prepare).unwrap());
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
