//! Failures of operations, and the Python exceptions that report them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kolo_comm::Error;
use pyo3::prelude::*;

/// A failed operation.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Kolo's own error.
    Kolo(Arc<Error>),
    /// A call that is wrong by itself: nothing was sent.
    Refused(String),
    /// The group was closed before the call.
    Closed,
    /// A mistake of Kolo.
    Panicked(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Kolo(Arc::new(error))
    }
}

impl Failure {
    /// Names an exception of `kolo._errors`.
    fn class(&self) -> &'static str {
        match self {
            Failure::Kolo(error) if error.is_refusal() => "InvalidCall",
            Failure::Kolo(error) => match **error {
                Error::Timeout { .. } | Error::Missing { .. } => "Timeout",
                _ => "Error",
            },
            Failure::Refused(_) => "InvalidCall",
            Failure::Closed | Failure::Panicked(_) => "Error",
        }
    }

    fn culprit(&self) -> Option<usize> {
        match self {
            Failure::Kolo(error) => error.culprit().map(|rank| rank.0),
            _ => None,
        }
    }

    fn message(&self) -> String {
        match self {
            Failure::Kolo(error) => match &**error {
                Error::Timeout { rank, during, waited } => format!(
                    "Timed out after {waited:?}: {rank} did not take part in {during}; raise the timeout of the group \
                     (or KOLO_TIMEOUT) if it is merely slow"
                ),
                error => error.to_string(),
            },
            Failure::Refused(message) => message.clone(),
            Failure::Closed => "the group is closed".into(),
            Failure::Panicked(message) => format!("Kolo has made a mistake, please report it: {message}"),
        }
    }

    /// Returns the exception, with a message that names the operation and this process's rank.
    pub fn exception(&self, py: Python<'_>, operation: &str, rank: Option<usize>) -> PyErr {
        let make = || -> PyResult<PyErr> {
            let class = py.import("kolo._errors")?.getattr(self.class())?;
            let place = rank.map_or(String::new(), |rank| format!(" of rank {rank}"));
            let message = format!("{operation}{place}: {}", self.message());
            let exception = class.call1((message,))?;
            exception.setattr("operation", operation)?;
            exception.setattr("rank", rank)?;
            exception.setattr("culprit", self.culprit())?;
            Ok(PyErr::from_value(exception))
        };
        make().unwrap_or_else(|error| error)
    }
}

/// Runs `work` and turns a panic into a failure.
pub fn guarded<R>(work: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    // A group that was in a collective when it panicked has failed, so a later call sees no half-made state.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| Err(Failure::Panicked(text(&*cause))))
}

fn text(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}
