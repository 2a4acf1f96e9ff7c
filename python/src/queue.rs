//! Operations that run one after another on a thread of their group while Python goes on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use kolo_comm::Group;
use kolo_comm::backend::WaitMode;
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::call::Call;
use crate::failure::Failure;
use crate::waiting::{interpreter, limit, wait_in_turns};

/// The end of one operation, which may be waited for.
#[derive(Default)]
pub struct Completion {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    result: Option<Result<(), Failure>>,
    callback: Option<Py<PyAny>>,
    /// Arrays that must live as long as the operation runs.
    keep: Option<Py<PyAny>>,
}

impl Completion {
    fn finish(&self, result: Result<(), Failure>) {
        let mut state = self.state.lock();
        state.result = Some(result);
        let (callback, keep) = (state.callback.take(), state.keep.take());
        drop(state);
        self.changed.notify_all();
        if callback.is_none() && keep.is_none() {
            return;
        }
        let Some(_interpreter) = interpreter() else {
            // Nobody is left to whom they could be returned.
            return std::mem::forget((callback, keep));
        };
        Python::attach(|py| {
            if let Some(Err(error)) = callback.map(|callback| callback.call0(py)) {
                error.print(py);
            }
            drop(keep);
        });
    }

    fn wait_for(&self, timeout: Duration) -> Option<Result<(), Failure>> {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| state.result.is_none(), timeout);
        state.result.clone()
    }
}

/// An operation that was started.
#[pyclass(frozen, module = "kolo._native")]
pub struct Handle {
    completion: Arc<Completion>,
    operation: &'static str,
    rank: usize,
}

#[pymethods]
impl Handle {
    /// Waits for the end; False if `timeout` seconds are over before it. Raises if the operation failed.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let raise = |failure: Failure| failure.exception(py, self.operation, Some(self.rank));
        let timeout = limit(timeout).map_err(raise)?;
        let done = { self.completion.state.lock().result.clone() };
        let result = match done {
            Some(result) => Some(result),
            None => wait_in_turns(py, timeout, |turn| self.completion.wait_for(turn))?,
        };
        match result {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(failure)) => Err(raise(failure)),
        }
    }

    /// True if the operation is over.
    fn is_done(&self) -> bool {
        self.completion.state.lock().result.is_some()
    }

    /// The exception with which the operation ended, or None.
    fn exception(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let result = { self.completion.state.lock().result.clone() };
        let failure = result?.err()?;
        Some(failure.exception(py, self.operation, Some(self.rank)).into_value(py).into_any())
    }

    /// Calls `callback` when the operation is over: on the group's thread, or at once.
    fn on_done(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let mut state = self.completion.state.lock();
        if state.result.is_none() {
            state.callback = Some(callback);
            return Ok(());
        }
        drop(state);
        callback.call0(py).map(drop)
    }
}

/// Returns the value of a future of torch that is over and has (value, exception), or raises its exception.
/// No frame of Python is on the way, so the text that torch makes of the exception has no trace.
#[pyfunction]
pub fn settle<'py>(future: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (value, error): (Bound<'py, PyAny>, Bound<'py, PyAny>) = future.call_method0("value")?.extract()?;
    if error.is_none() { Ok(value) } else { Err(PyErr::from_value(error)) }
}

type Job = (Call, Arc<Completion>);

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    closed: bool,
}

/// A group and its queue. Its thread starts with the first operation that needs it.
pub struct Queue {
    pub group: Group,
    jobs: Mutex<Jobs>,
    changed: Condvar,
    /// Number of operations that wait or run on the thread.
    pending: AtomicUsize,
    thread: Mutex<Option<JoinHandle<()>>>,
    thread_id: Mutex<Option<ThreadId>>,
}

impl Queue {
    pub fn new(group: Group) -> Arc<Queue> {
        Arc::new(Queue {
            group,
            jobs: Mutex::default(),
            changed: Condvar::new(),
            pending: AtomicUsize::new(0),
            thread: Mutex::default(),
            thread_id: Mutex::default(),
        })
    }

    /// Returns true if a call must run on the calling thread, which is the queue's: a callback of a future runs
    /// there, and may start collectives and wait for them.
    pub fn is_calling(&self) -> bool {
        *self.thread_id.lock() == Some(std::thread::current().id())
    }

    /// Returns true if nothing waits or runs, so that a call may run on the calling thread.
    pub fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Starts an operation on the group's thread. `keep` lives until it is over.
    ///
    /// # Errors
    ///
    /// The group is closed, or the operating system has no more threads.
    pub fn start(self: &Arc<Self>, call: Call, keep: Option<Py<PyAny>>) -> Result<Handle, Failure> {
        let mut jobs = self.jobs.lock();
        if jobs.closed {
            return Err(Failure::Closed);
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let queue = self.clone();
            let builder = std::thread::Builder::new().name("kolo-python".into());
            let started = builder.spawn(move || queue.serve());
            *thread =
                Some(started.map_err(|cause| Failure::Refused(format!("cannot start a thread: {cause}")))?);
        }
        let (operation, rank) = (call.operation.name(), self.group.rank().0);
        let completion = Arc::new(Completion::default());
        completion.state.lock().keep = keep;
        self.pending.fetch_add(1, Ordering::AcqRel);
        jobs.waiting.push_back((call, completion.clone()));
        self.changed.notify_one();
        Ok(Handle { completion, operation, rank })
    }

    fn serve(&self) {
        *self.thread_id.lock() = Some(std::thread::current().id());
        loop {
            let mut jobs = self.jobs.lock();
            let (call, completion) = loop {
                match jobs.waiting.pop_front() {
                    Some(job) => break job,
                    None if jobs.closed => return,
                    None => self.changed.wait(&mut jobs),
                }
            };
            drop(jobs);
            let result = call.run(&self.group, WaitMode::Background);
            // Until a callback is over the queue is busy, so that calls of other threads come after its own.
            completion.finish(result);
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Lets what was started end, for at most `patience`; then ends the group, which ends the rest.
    pub fn close(&self, patience: Duration) {
        self.jobs.lock().closed = true;
        self.changed.notify_all();
        let until = std::time::Instant::now() + patience;
        let Some(thread) = self.thread.lock().take() else { return };
        if self.is_calling() {
            return;
        }
        while !thread.is_finished() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        if !thread.is_finished() {
            self.group.abandon("it closed the group while operations were under way");
        }
        // It panics only because of a bug, and the panic has been printed.
        let _ = thread.join();
    }
}
