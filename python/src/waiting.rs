//! Waits that a signal ends, and the end of the interpreter.

use std::cell::RefCell;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use pyo3::prelude::*;

use crate::failure::Failure;

/// Time between two looks for signals.
pub const TURN: Duration = Duration::from_millis(50);

/// True when the interpreter is about to end. From then on no thread may attach to it: Python 3.11 ends a
/// thread that does by `pthread_exit`, which ends the process on its way through Rust's frames.
static CLOSING: RwLock<bool> = RwLock::new(false);

/// Keeps the interpreter from ending while it is held; `None` if the end has begun.
pub fn interpreter() -> Option<RwLockReadGuard<'static, bool>> {
    let closing = CLOSING.read_recursive();
    (!*closing).then_some(closing)
}

/// Waits for callbacks that run, and lets no further one begin.
#[pyfunction]
pub fn end_callbacks(py: Python<'_>) {
    py.detach(|| *CLOSING.write() = true);
}

thread_local! {
    /// The exception that a signal's handler has raised while this thread was in a collective.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs the handlers of signals that have arrived; true if one has raised an exception.
fn is_interrupted() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            RAISED.set(Some(error));
            true
        }
    })
}

/// Runs a collective without the GIL. A signal whose handler raises, as Ctrl-C does, ends it and the group,
/// because the other ranks wait for this one.
pub fn interruptible<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    let result = py.detach(|| kolo_comm::interruptible(is_interrupted, work));
    match RAISED.take() {
        Some(error) => Err(error),
        None => Ok(result),
    }
}

/// Returns the longest time of a wait, which Python gives in seconds; `None` if it has no end.
///
/// # Errors
///
/// It is negative, or no number.
pub fn limit(seconds: Option<f64>) -> Result<Option<Duration>, Failure> {
    let Some(seconds) = seconds else { return Ok(None) };
    if seconds >= 0.0 {
        // What a duration cannot hold has no end.
        return Ok(Duration::try_from_secs_f64(seconds).ok());
    }
    Err(Failure::Refused(format!("the timeout is {seconds}; it must be a number of seconds from 0")))
}

/// Calls `poll`, which waits at most the given time, until it returns a value or `until` is over. A signal
/// ends the wait and nothing else.
pub fn wait_in_turns<R: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut poll: impl FnMut(Duration) -> Option<R> + Send,
) -> PyResult<Option<R>> {
    let until = timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout));
    loop {
        let rest = until.map_or(TURN, |until| until.saturating_duration_since(std::time::Instant::now()));
        if let Some(result) = py.detach(|| poll(rest.min(TURN))) {
            return Ok(Some(result));
        }
        py.check_signals()?;
        if rest.is_zero() {
            return Ok(None);
        }
    }
}
