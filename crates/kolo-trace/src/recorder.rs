//! The recorder of this process: receives spans from all layers, and writes them on a separate thread.

use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::part::PartWriter;
use crate::span::{Event, What};

/// True while a recording runs.
static ON: AtomicBool = AtomicBool::new(false);

static STEP: AtomicU64 = AtomicU64::new(0);

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

/// Number of events, and age of the last write, at which events are sent to the writing thread.
const BATCH_EVENTS: usize = 4096;
const BATCH_AGE: Duration = Duration::from_secs(1);

/// Steps to record: `10-29`, or `10`; all by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps(RangeInclusive<u64>);

impl Default for Steps {
    fn default() -> Self {
        Steps(0..=u64::MAX)
    }
}

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number =
            |text: &str| text.parse::<u64>().map_err(|_| "give steps as FIRST-LAST, from 0".to_owned());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("the first step, {first}, is after the last, {last}"));
        }
        Ok(Steps(first..=last))
    }
}

struct Recorder {
    steps: Steps,
    events: Vec<Event>,
    sent_at: Instant,
    /// The same moment by both clocks, to convert between them.
    instant: Instant,
    monotonic: u64,
    queue: Sender<Vec<Event>>,
    writer: JoinHandle<Result<(), Error>>,
}

/// Starts to record this process's activities in `steps` to a part in `folder`.
///
/// # Errors
///
/// If the part or the thread that writes it cannot be created.
pub fn record(folder: &Path, steps: Steps) -> Result<(), Error> {
    let mut part = PartWriter::create(folder)?;
    let (queue, batches) = mpsc::channel::<Vec<Event>>();
    let write = move || batches.into_iter().try_for_each(|events| part.write(&events));
    let writer = std::thread::Builder::new().name("kolo-trace".into()).spawn(write);
    let writer = writer.map_err(Error::file(folder))?;
    let (instant, monotonic) = (Instant::now(), monotonic());
    let (events, sent_at) = (Vec::new(), instant);
    *recorder() = Some(Recorder { steps, events, sent_at, instant, monotonic, queue, writer });
    ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// Ends the recording, if one runs, and writes all remaining events.
///
/// # Errors
///
/// If something could not be written.
pub fn finish() -> Result<(), Error> {
    ON.store(false, Ordering::Relaxed);
    let Some(recorder) = recorder().take() else { return Ok(()) };
    let Recorder { events, queue, writer, .. } = recorder;
    // If the thread has ended, its error is returned below.
    let _ = queue.send(events);
    drop(queue);
    result_of(writer)
}

/// Waits until the writing thread has ended.
fn result_of(writer: JoinHandle<Result<(), Error>>) -> Result<(), Error> {
    // The panic has been printed.
    writer.join().unwrap_or(Err(Error::WriterPanicked))
}

/// Returns true while a recording runs.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Begins a step, to which all following spans belong.
pub fn begin_step(step: u64) {
    STEP.store(step, Ordering::Relaxed);
    if let Some(recorder) = &mut *recorder() {
        recorder.send_batch();
    }
}

/// Returns the number of the current step.
pub fn current_step() -> u64 {
    STEP.load(Ordering::Relaxed)
}

/// Records an activity of the current step that lasted from `start` to `end`.
pub fn span(start: Instant, end: Instant, what: impl FnOnce() -> What) {
    span_of(current_step(), start, end, what);
}

/// Records an activity of another step, for example of one whose gradients arrive during the next step.
pub fn span_of(step: u64, start: Instant, end: Instant, what: impl FnOnce() -> What) {
    if !is_on() {
        return;
    }
    if let Some(recorder) = recorder().as_mut().filter(|recorder| recorder.steps.0.contains(&step)) {
        recorder.add(step, start, end, what());
    }
}

/// Records an event of this moment.
pub fn mark(what: impl FnOnce() -> What) {
    let now = Instant::now();
    span(now, now, what);
}

/// Records that this process now has this rank of this generation, even in a step that is not recorded.
pub fn rank(rank: usize, world_size: usize, generation: u64) {
    if let Some(recorder) = &mut *recorder() {
        let now = Instant::now();
        recorder.add(current_step(), now, now, What::Rank { rank, world_size, generation });
    }
}

/// Runs `work` and records it as `what`.
pub fn spanned<R>(what: What, work: impl FnOnce() -> R) -> R {
    if !is_on() {
        return work();
    }
    let start = Instant::now();
    let result = work();
    span(start, Instant::now(), || what);
    result
}

impl Recorder {
    fn add(&mut self, step: u64, start: Instant, end: Instant, what: What) {
        let event = Event { what, step, start: self.at(start), end: self.at(end) };
        self.events.push(event);
    }

    /// Converts to nanoseconds of the host's monotonic clock, which all its processes share.
    fn at(&self, instant: Instant) -> u64 {
        match instant.checked_duration_since(self.instant) {
            Some(since) => self.monotonic + since.as_nanos() as u64,
            None => self.monotonic.saturating_sub((self.instant - instant).as_nanos() as u64),
        }
    }

    fn send_batch(&mut self) {
        let waits = !self.events.is_empty() && self.sent_at.elapsed() >= BATCH_AGE;
        if waits || self.events.len() >= BATCH_EVENTS {
            // If the writing thread has failed, `finish` returns its error.
            let _ = self.queue.send(std::mem::take(&mut self.events));
            self.sent_at = Instant::now();
        }
    }
}

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Part;

    #[test]
    fn steps_are_read() {
        assert_eq!("10-29".parse(), Ok(Steps(10..=29)));
        assert_eq!("7".parse(), Ok(Steps(7..=7)));
        for text in ["", "a-b", "-3", "3-"] {
            assert!(text.parse::<Steps>().unwrap_err().contains("FIRST-LAST"), "{text}");
        }
        assert!("9-2".parse::<Steps>().unwrap_err().contains("after the last"));
    }

    #[test]
    fn a_writing_thread_that_panics_has_written_no_timeline() {
        let writer = std::thread::spawn(|| panic!("on purpose"));
        assert!(matches!(result_of(writer), Err(Error::WriterPanicked)));
    }

    /// One test, because a process has one recorder.
    #[test]
    fn recorded_spans_are_in_the_part() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_on());
        span(Instant::now(), Instant::now(), || panic!("nothing is recorded yet"));
        record(folder.path(), "1-2".parse().unwrap()).unwrap();
        for step in 0..4 {
            begin_step(step);
            rank(step as usize, 4, 0);
            let start = Instant::now();
            span(start, start + Duration::from_micros(5), || What::Forward);
            span_of(step + 1, start, start, || What::Backward);
        }
        finish().unwrap();
        let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap();
        let part = Part::read(&file.path()).unwrap().unwrap();
        assert_eq!(part.header.process, std::process::id());
        let forward = part.events.iter().filter(|event| event.what == What::Forward);
        let forward: Vec<_> = forward.map(|event| (event.step, event.end - event.start)).collect();
        assert_eq!(forward, [(1, 5000), (2, 5000)]);
        let backward = part.events.iter().filter(|event| event.what == What::Backward);
        assert_eq!(backward.map(|event| event.step).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(part.events.len(), 2 + 2 + 4);
        let now = monotonic();
        assert!(part.events.iter().all(|event| event.end <= now + 5000 && event.end > 0));
    }
}
