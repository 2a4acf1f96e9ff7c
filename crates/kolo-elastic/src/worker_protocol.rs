//! What a member and the coordinator of its node say to one another: JSON under keys of the coordinator's
//! store.
//!
//! | key | who sets it | value |
//! |---|---|---|
//! | `arrival/<member>` | the member, when it wants to belong to the next generation | [`Arrival`] |
//! | `cpu/<member>` | the member, every second | milliseconds of CPU time that its process has taken |
//! | `reply/<member>/<number of its arrival>` | the coordinator | [`Reply`] |
//! | `job` | the coordinator, when it has found its job | what tells the job from all others |
//! | `no-job` | the coordinator, when it belongs to no job, or not any more | the reason, as a sentence |
//! | `regroup/<generation>` | the coordinator, when the generation should end with a step | anything |

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::generation::{GenerationId, History};

/// The key of what tells the job from all others.
pub(crate) const JOB_ID: &str = "job";
/// The key of the reason why there is no job.
pub(crate) const NO_JOB: &str = "no-job";
/// The prefix of the keys of arrivals.
pub(crate) const ARRIVAL: &str = "arrival/";
/// The prefix of the keys of CPU times.
pub(crate) const CPU_TIME: &str = "cpu/";

/// A member waits for an assignment in the next generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Arrival {
    /// Counts this member's arrivals, from 1.
    pub(crate) number: u64,
    /// Why the member has left its last generation; `None` if it was in none.
    pub(crate) reason: Option<String>,
    /// How long the others of that generation may take to arrive, where this member has seen how long their
    /// steps take.
    #[serde(default)]
    pub(crate) rejoin_timeout_ms: Option<u64>,
    /// Whether the member holds the state of the job.
    #[serde(default)]
    pub(crate) has_state: bool,
    /// Whether the member is a summation server, which never holds it.
    #[serde(default)]
    pub(crate) server: bool,
    /// Tells the member's process from others of its name.
    #[serde(default)]
    pub(crate) incarnation: u64,
    /// The generations that the member has been in.
    #[serde(default)]
    pub(crate) history: History,
}

/// The coordinator's answer to an arrival.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The member belongs to the next generation.
    Assigned(Assignment),
    /// No generation follows, because too few members are there. `first`: this member has the lowest rank of
    /// them.
    TooFew { present: usize, min: usize, waited_ms: u64, first: bool },
    /// Every member that held the job's state is gone.
    StateLost,
    /// The next generation cannot be served.
    Failed { reason: String },
    /// Another part of the job goes on, or may: this one must not.
    Superseded { reason: String },
}

/// A member's part in a generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) generation: GenerationId,
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    pub(crate) local_rank: usize,
    /// Where the generation's store listens.
    pub(crate) store: SocketAddr,
    /// Why the last generation has ended.
    pub(crate) reason: String,
}

/// The key of a member's arrivals.
pub(crate) fn arrival_key(member: &str) -> String {
    format!("{ARRIVAL}{member}")
}

/// The key of the CPU time that a member's process has taken.
pub(crate) fn cpu_time_key(member: &str) -> String {
    format!("{CPU_TIME}{member}")
}

/// The key of the reply to a member's arrival.
pub(crate) fn reply_key(member: &str, arrival: u64) -> String {
    format!("reply/{member}/{arrival}")
}

/// The key that is set when a generation should end with a step.
pub(crate) fn regroup_key(generation: u64) -> String {
    format!("regroup/{generation}")
}
