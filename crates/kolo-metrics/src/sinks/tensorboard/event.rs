//! The messages of an event file: the few fields of `tensorflow/core/util/event.proto` and
//! `tensorflow/core/framework/summary.proto` that scalars need, by their numbers there.

use std::time::SystemTime;

use prost::Message;

use kolo_run_folder::unix_seconds;

/// Version of the format, in a file's first event.
const VERSION: &str = "brain.Event:2";
/// `SessionLog.SessionStatus.START`.
const START: i32 = 1;

/// One record of an event file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    /// Position of its values on the axis.
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session_log: Option<SessionLog>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    /// Name of the value; the part before a slash is its group in the display.
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    #[prost(float, optional, tag = "2")]
    pub(super) simple_value: Option<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

impl Event {
    fn now(step: u64) -> Self {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        Event { wall_time: unix_seconds(SystemTime::now()), step, ..Event::default() }
    }

    pub(super) fn version() -> Self {
        Event { file_version: Some(VERSION.into()), ..Event::now(0) }
    }

    /// Makes the event of a run that continues from `step`: TensorBoard forgets later values.
    pub(super) fn start(step: u64) -> Self {
        Event { session_log: Some(SessionLog { status: START }), ..Event::now(step) }
    }

    pub(super) fn scalars(step: u64, values: Vec<(String, f64)>) -> Self {
        let value = |(tag, value): (String, f64)| Value { tag, simple_value: Some(value as f32) };
        let summary = Summary { value: values.into_iter().map(value).collect() };
        Event { summary: Some(summary), ..Event::now(step) }
    }

    pub(super) fn values(&self) -> &[Value] {
        self.summary.as_ref().map_or(&[], |summary| &summary.value)
    }
}
