//! A timeline of all ranks of a job: what each of them computed, sent and waited for, and when.
//!
//! **The way of a span.** The code that does something worth showing calls [`span`] with its [`What`] when it
//! is over. There is one recorder a process, as there is one logger: spans come from all layers, and none of
//! them hands a recorder to the next. Where no recording runs a call costs one load of an atomic. The
//! recorder keeps spans in memory and a thread of its own writes them to this process's *part*
//! ([`PartHeader`]), so a worker that dies loses the last second.
//!
//! **From parts to a timeline.** [`join`] reads all parts, finds how far the clocks of their hosts are apart
//! ([`Clock`]), says of each collective for whom the others waited, and writes Chrome
//! trace JSON (the Trace Event Format's object form), which Perfetto and `chrome://tracing` open.

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
