//! Messages between a member and the coordinator of its node: JSON under keys of the coordinator's store.
//!
//! | key | set by | value |
//! |---|---|---|
//! | `arrival/<member>` | the member, when it wants to belong to the next generation | [`Arrival`] |
//! | `fixed/<member>` | a worker that forms a fixed group instead | the setting |
//! | `cpu/<member>` | the member, every second | CPU time of its process, in milliseconds |
//! | `reply/<member>/<number of its arrival>` | the coordinator | [`Reply`] |
//! | `job` | the coordinator, when it has found its job | unique id of the job |
//! | `no-job` | the coordinator, when it belongs to no job, or no longer does | the reason, as a sentence |
//! | `regroup/<generation>` | the coordinator, when the generation should end after a step | anything |

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::generation::{GenerationId, History};

pub(crate) const JOB_ID: &str = "job";
/// Key of the reason why there is no job.
pub(crate) const NO_JOB: &str = "no-job";
pub(crate) const ARRIVAL: &str = "arrival/";
pub(crate) const FIXED: &str = "fixed/";
pub(crate) const CPU_TIME: &str = "cpu/";

/// A member's request for an assignment in the next generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Arrival {
    /// Number of this arrival among the member's, from 1.
    pub(crate) number: u64,
    /// Reason why the member has left its last generation; `None` if it was in none, or the leader has asked
    /// it to.
    pub(crate) reason: Option<String>,
    /// Time that the other members of that generation may take to arrive, if this member knows their pace.
    #[serde(default)]
    pub(crate) rejoin_timeout_ms: Option<u64>,
    /// True if the member holds the state of the job.
    #[serde(default)]
    pub(crate) has_state: bool,
    /// True if the member is a summation server, which never holds the state.
    #[serde(default)]
    pub(crate) server: bool,
    /// Number that distinguishes the member's process from others of its name.
    #[serde(default)]
    pub(crate) incarnation: u64,
    #[serde(default)]
    pub(crate) history: History,
}

/// The coordinator's answer to an arrival.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The member belongs to the next generation.
    Assigned(Assignment),
    /// No generation follows: too few members have arrived. Those that hold the state form a `last` group,
    /// which is no generation, to save it.
    TooFew { present: usize, min: usize, waited_ms: u64, last: Option<Assignment> },
    /// Every member that held the job's state is gone.
    StateLost,
    /// The coordinator cannot serve the next generation.
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
    /// Address at which the generation's store listens.
    pub(crate) store: SocketAddr,
    /// Reason for the end of the last generation.
    pub(crate) reason: String,
}

pub(crate) fn arrival_key(member: &str) -> String {
    format!("{ARRIVAL}{member}")
}

pub(crate) fn fixed_key(member: &str) -> String {
    format!("{FIXED}{member}")
}

pub(crate) fn cpu_time_key(member: &str) -> String {
    format!("{CPU_TIME}{member}")
}

pub(crate) fn reply_key(member: &str, arrival: u64) -> String {
    format!("reply/{member}/{arrival}")
}

/// Returns the key that the coordinator sets when a generation should end after a step.
pub(crate) fn regroup_key(generation: u64) -> String {
    format!("regroup/{generation}")
}
