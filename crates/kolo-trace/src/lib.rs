//! A timeline of all ranks of a job: what each of them computed, sent and waited for, and when.
//!
//! **From the code to a part.** Code that is worth showing calls [`span`] with its [`What`] when it is done.
//! Like a logger, there is one recorder per process: all layers send spans to it, and no layer passes a
//! recorder to another. Without a recording a call costs one atomic load. The recorder keeps spans in memory,
//! and a thread writes them to the process's *part* ([`PartHeader`]) about once a second. A worker that dies
//! loses the spans since the last write.
//!
//! **From parts to a timeline.** [`join`] reads all parts and computes the offsets between the clocks of
//! their hosts ([`Clock`]). For each collective it finds the rank for which the others waited. It writes
//! Chrome trace JSON (the Trace Event Format's object form), which Perfetto and `chrome://tracing` open.

mod error;
mod join;
mod part;
mod recorder;
mod span;

pub use error::Error;
pub use join::{Clock, Joined, check_free, join, parts_folder};
pub use part::{Part, PartHeader};
pub use recorder::{
    Steps, begin_step, current_step, finish, is_on, mark, rank, record, span, span_of, spanned,
};
pub use span::{Bucket, Event, What};
