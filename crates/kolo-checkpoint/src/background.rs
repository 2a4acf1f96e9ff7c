//! Thread that runs one job at a time; a newer job replaces the waiting one, unless that one must run.

use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;
use crate::warning::{Warning, Warnings, tell};

/// Time between two attempts of the last job.
const RETRY: Duration = Duration::from_millis(200);

/// Thread with at most one waiting job. A job that fails is reported as a warning and dropped when the next
/// one arrives. The last job is retried at the end: once, or for as long as the owner's patience lasts.
pub(crate) struct Background<T> {
    shared: Arc<Shared<T>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: Option<T>,
    /// True if no newer job may replace the waiting one.
    must_run: bool,
    closing: bool,
    /// Time during which the last job is retried.
    patience: Duration,
}

impl<T> Shared<T> {
    /// Waits for the next job; `None` means that there will be no more.
    fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.waiting.is_none() && !state.closing);
        let job = state.waiting.take();
        // The owner may wait for the free place.
        self.changed.notify_all();
        job
    }
}

impl<T: Send + 'static> Background<T> {
    /// Starts the thread, which runs `work` for each job.
    pub(crate) fn start(
        name: &str,
        warnings: Warnings,
        work: impl FnMut(&T) -> Result<(), Error> + Send + 'static,
    ) -> std::io::Result<Self> {
        let state =
            Mutex::new(State { waiting: None, must_run: false, closing: false, patience: Duration::ZERO });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let own = shared.clone();
        let thread =
            std::thread::Builder::new().name(name.into()).spawn(move || run(&own, &warnings, work))?;
        Ok(Background { shared, thread: Some(thread) })
    }

    /// Hands a job to the thread, in place of one that still waits. If that one must run, waits until it has
    /// begun; a thread that has panicked begins no more.
    pub(crate) fn put(&self, job: T, must_run: bool) {
        let mut state = self.shared.state.lock();
        while state.waiting.is_some() && state.must_run && !self.has_ended() {
            self.shared.changed.wait_for(&mut state, RETRY);
        }
        state.must_run = must_run;
        let replaced = state.waiting.replace(job);
        drop(state);
        // Frees its memory without the lock.
        drop(replaced);
        self.shared.changed.notify_all();
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for all jobs. A last job that fails is retried at least once, and for as long as `patience`
    /// allows.
    /// Returns the last job's error if each attempt failed.
    pub(crate) fn finish(mut self, patience: Duration) -> Result<(), Error> {
        self.shared.state.lock().patience = patience;
        self.end()
    }
}

impl<T> Background<T> {
    fn end(&mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.state.lock().closing = true;
        self.shared.changed.notify_all();
        thread.join().unwrap_or(Err(Error::WriterPanicked))
    }
}

/// Runs the waiting job even if nobody waits for the result: the next run may need it.
impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            // There is no caller to return the error to.
            tell(&format_args!("Kolo could not write the last checkpoint: {error}"));
        }
    }
}

fn run<T>(
    shared: &Shared<T>,
    warnings: &Warnings,
    mut work: impl FnMut(&T) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut failed = None;
    while let Some(job) = shared.next() {
        failed = None;
        if let Err(error) = work(&job) {
            warnings.add(Warning::NotWritten(error));
            failed = Some(job);
        }
    }
    let Some(job) = failed else { return Ok(()) };
    let until = Instant::now() + shared.state.lock().patience;
    loop {
        match work(&job) {
            Err(_) if Instant::now() < until => sleep(RETRY),
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Creates a background whose jobs report their start, then wait for the test to choose their outcome.
    fn background() -> (Background<u32>, Receiver<u32>, Sender<bool>) {
        with(Warnings::default())
    }

    fn with(warnings: Warnings) -> (Background<u32>, Receiver<u32>, Sender<bool>) {
        let (begun, begins) = channel();
        let (outcome, outcomes) = channel();
        let work = move |job: &u32| {
            begun.send(*job).unwrap();
            match outcomes.recv() {
                Ok(true) => Ok(()),
                _ => Err(Error::file("checkpoint", format!("job {job}"))),
            }
        };
        (Background::start("test", warnings, work).unwrap(), begins, outcome)
    }

    #[test]
    fn the_newest_job_replaces_the_waiting_one() {
        let (background, begins, outcome) = background();
        background.put(1, false);
        assert_eq!(begins.recv().unwrap(), 1);
        (2..=4).for_each(|job| background.put(job, false));
        (0..2).for_each(|_| outcome.send(true).unwrap());
        background.finish(Duration::ZERO).unwrap();
        assert_eq!(begins.iter().collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_job_that_must_run_is_not_replaced() {
        let (background, begins, outcome) = background();
        background.put(1, false);
        assert_eq!(begins.recv().unwrap(), 1);
        background.put(2, true);
        std::thread::scope(|scope| {
            // Waits for the second job's begin, which waits for the first one's end.
            let newer = scope.spawn(|| (3..=4).for_each(|job| background.put(job, false)));
            outcome.send(true).unwrap();
            assert_eq!(begins.recv().unwrap(), 2);
            newer.join().unwrap();
        });
        (0..2).for_each(|_| outcome.send(true).unwrap());
        background.finish(Duration::ZERO).unwrap();
        assert_eq!(begins.iter().collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_failed_job_is_dropped_for_the_next_but_the_last_is_retried() {
        let warnings = Warnings::default();
        let (background, begins, outcome) = with(warnings.clone());
        [false, false, true].into_iter().for_each(|end| outcome.send(end).unwrap());
        background.put(1, false);
        assert_eq!(begins.recv().unwrap(), 1);
        background.put(2, false);
        background.finish(Duration::ZERO).unwrap();
        assert_eq!(begins.iter().collect::<Vec<_>>(), [2, 2]);
        let seen: Vec<String> = warnings.take().iter().map(Warning::to_string).collect();
        assert_eq!(seen.len(), 2);
        assert!(
            seen[0].contains("write a checkpoint: checkpoint: job 1") && seen[1].contains("job 2"),
            "{seen:?}"
        );
        assert!(warnings.take().is_empty(), "each once");
    }

    #[test]
    fn the_last_failure_is_returned() {
        let (background, _begins, outcome) = background();
        background.put(7, false);
        (0..2).for_each(|_| outcome.send(false).unwrap());
        assert_eq!(background.finish(Duration::ZERO).unwrap_err().to_string(), "checkpoint: job 7");
    }

    #[test]
    fn the_last_job_is_retried_while_patience_lasts() {
        let (background, begins, outcome) = background();
        background.put(7, false);
        [false, false, false, true].into_iter().for_each(|end| outcome.send(end).unwrap());
        background.finish(Duration::from_secs(3600)).unwrap();
        assert_eq!(begins.iter().count(), 4);
    }

    #[test]
    fn dropping_it_runs_the_waiting_job_and_ends() {
        let (background, begins, outcome) = background();
        background.put(1, false);
        outcome.send(true).unwrap();
        drop(background);
        assert_eq!(begins.iter().collect::<Vec<_>>(), [1]);
        let (idle, begins, _outcome) = self::background();
        drop(idle);
        assert_eq!(begins.iter().count(), 0);
    }
}
