//! Batches prepared ahead on threads of their own, so that the training thread never waits for them.

use std::any::Any;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
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
    Data(Box<DataError>),
    /// The thread panicked, because of a bug in the requests or in the function that prepares them.
    #[error("the thread that prepares batches failed: {0}")]
    Panicked(String),
}

impl From<DataError> for PrefetchError {
    fn from(error: DataError) -> Self {
        PrefetchError::Data(error.into())
    }
}

/// An iterator over batches in the order of their requests.
///
/// Each batch is prepared by one of the threads. At most `depth` finished batches wait, beside one that each
/// thread prepares. Dropping the iterator ends the threads and waits for them.
#[derive(Debug)]
pub struct Prefetch<B> {
    /// For each request, in order, the receiver of its batch.
    batches: Option<Receiver<Receiver<B>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: Send + 'static> Prefetch<B> {
    /// Starts `threads` threads (0 counts as 1), on which `prepare` makes a batch for each request.
    ///
    /// # Errors
    ///
    /// [`PrefetchError::Spawn`] if the operating system cannot start a thread.
    pub fn new<R>(
        requests: impl IntoIterator<Item = R, IntoIter: Send> + Send + 'static,
        depth: usize,
        threads: usize,
        prepare: impl Fn(R) -> B + Send + Sync + 'static,
    ) -> Result<Self, PrefetchError> {
        let threads = threads.max(1);
        let (places, batches) = sync_channel(depth.saturating_add(threads));
        // Whoever takes a request takes its place in the order too.
        let queue = Arc::new((Mutex::new((requests.into_iter(), places)), prepare));
        let mut all = Prefetch { batches: Some(batches), threads: Vec::with_capacity(threads) };
        for _ in 0..threads {
            let queue = queue.clone();
            let work = move || {
                let (requests, prepare) = &*queue;
                loop {
                    let (batch, place) = sync_channel(1);
                    let request = {
                        // Poisoned if the requests have panicked on another thread.
                        let Ok(mut requests) = requests.lock() else { return };
                        if requests.1.send(place).is_err() {
                            return;
                        }
                        requests.0.next()
                    };
                    let Some(request) = request else { return };
                    // Fails if nobody wants the batch any more, as the next place shows.
                    let _ = batch.send(prepare(request));
                }
            };
            all.threads.push(Builder::new().name("kolo-prefetch".into()).spawn(work)?);
        }
        Ok(all)
    }
}

impl<B> Prefetch<B> {
    /// Ends the threads, and returns the first panic of one.
    fn join(&mut self) -> Option<Box<dyn Any + Send>> {
        // The receiver first: a thread that waits for a place then sees that the channel is closed.
        self.batches = None;
        let ended: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        ended.into_iter().find_map(Result::err)
    }
}

impl<B> Iterator for Prefetch<B> {
    type Item = Result<B, PrefetchError>;

    /// Returns the next batch; an error once if a thread failed; `None` after the last request.
    fn next(&mut self) -> Option<Self::Item> {
        let place = self.batches.as_ref()?.recv();
        if let Some(batch) = place.ok().and_then(|place| place.recv().ok()) {
            return Some(Ok(batch));
        }
        self.join().map(|payload| Err(PrefetchError::Panicked(message(&*payload))))
    }
}

impl<B> Drop for Prefetch<B> {
    fn drop(&mut self) {
        // The panic hook has already printed the message of a panic.
        drop(self.join());
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Returns the square of a number below 10.
    fn prepare(number: usize) -> usize {
        [0, 1, 4, 9, 16, 25, 36, 49, 64, 81][number]
    }

    #[test]
    fn batches_come_in_order() {
        let prefetch = Prefetch::new([2, 0, 9], 2, 1, prepare).unwrap();
        assert_eq!(prefetch.map(Result::unwrap).collect::<Vec<_>>(), [4, 0, 81]);
    }

    /// The first of each three requests takes longest.
    #[test]
    fn several_threads_keep_the_order() {
        for threads in [0, 2, 3, 8] {
            let slow = |number: u64| {
                std::thread::sleep(Duration::from_millis(3 * u64::from(number.is_multiple_of(3))));
                number
            };
            let prefetch = Prefetch::new(0..40, 2, threads, slow).unwrap();
            assert!(prefetch.map(Result::unwrap).eq(0..40), "{threads} threads");
        }
    }

    #[test]
    fn several_threads_prepare_at_the_same_time() {
        // Each waits for the other.
        let barrier = Arc::new(std::sync::Barrier::new(2));
        let prefetch = Prefetch::new(0..8, 1, 2, move |_| barrier.wait()).unwrap();
        assert_eq!(prefetch.map(Result::unwrap).count(), 8);
    }

    #[test]
    fn it_does_not_run_further_ahead_than_its_depth() {
        let requested = Arc::new(AtomicUsize::new(0));
        let counter = requested.clone();
        let requests = std::iter::repeat_with(move || {
            counter.fetch_add(1, Ordering::SeqCst);
            0
        });
        let mut prefetch = Prefetch::new(requests, 3, 1, prepare).unwrap();
        prefetch.next().unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        // One batch taken, three waiting, one in preparation or waiting too.
        assert!(requested.load(Ordering::SeqCst) <= 5, "{} requests taken", requested.load(Ordering::SeqCst));
    }

    #[test]
    fn a_panic_is_an_error_and_then_the_end() {
        let mut prefetch = Prefetch::new([0, 77], 2, 3, prepare).unwrap();
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
        drop(Prefetch::new(requests, 2, 3, prepare).unwrap());
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
