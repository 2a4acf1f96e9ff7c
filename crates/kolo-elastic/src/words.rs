//! What members and coordinator say to one another, as JSON in the coordinator's store.
//!
//! | key | who sets it | value |
//! |---|---|---|
//! | `arrival/<member>` | the member, when it comes to the meeting | [`Arrival`] |
//! | `work/<member>` | the member, every second | milliseconds of CPU time that its process has taken |
//! | `seat/<member>/<number of its arrival>` | the coordinator | [`Seat`] |
//! | `job` | the coordinator, when it belongs to one | what tells the job from all others |
//! | `change/<generation>` | the coordinator, when others wait to come in | anything |

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub(super) const JOB: &str = "job";
pub(super) const ARRIVAL: &str = "arrival/";
pub(super) const WORK: &str = "work/";

/// A member comes to the meeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrival {
    /// Counts this member's arrivals, from 1.
    pub(super) number: u64,
    /// Why it has left its last generation.
    pub(super) reason: Option<String>,
    /// How long others may take to leave that one, as far as this member knows what its work takes.
    #[serde(default)]
    pub(super) patience_ms: Option<u64>,
    /// Whether it has the state of the job.
    #[serde(default)]
    pub(super) settled: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Seat {
    /// It belongs to the next generation.
    Taken(Place),
    /// There will be none.
    Refused { present: usize, min: usize, waited_ms: u64, first: bool },
    /// Those who had the job's state are gone.
    Orphaned,
    /// The next generation cannot be served.
    Failed { why: String },
}

/// A place in a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) generation: u64,
    pub(super) rank: usize,
    pub(super) world_size: usize,
    pub(super) local_rank: usize,
    /// The generation's store.
    pub(super) store: SocketAddr,
    pub(super) reason: String,
}

pub(super) fn arrival(member: &str) -> String {
    format!("{ARRIVAL}{member}")
}

pub(super) fn work(member: &str) -> String {
    format!("{WORK}{member}")
}

pub(super) fn seat(member: &str, number: u64) -> String {
    format!("seat/{member}/{number}")
}

pub(super) fn change(generation: u64) -> String {
    format!("change/{generation}")
}
