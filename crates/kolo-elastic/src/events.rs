//! What happens to members, and what a coordinator tells the launcher that runs it.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::worker_protocol::Arrival;

/// How a member's process has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberExit {
    /// The member's work is done, or it has left the job in good order.
    Clean,
    /// The member has failed. The text is the rest of a sentence that begins with its name, such as `was
    /// killed by SIGKILL`.
    Failed(String),
}

/// Something that a launcher or a worker has said of a member. The leader hears the events of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum MemberEvent {
    /// The launcher has started the member's process.
    Started,
    /// The member has arrived at its coordinator and waits for an assignment.
    Arrived(Arrival),
    /// The member's process has taken so much CPU time since it began.
    CpuTime(Duration),
    /// The member's process has ended.
    Exited(MemberExit),
}

/// What a coordinator tells the launcher that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CoordinatorEvent {
    /// A generation has begun.
    GenerationFormed {
        /// The generation's number, from 1.
        generation: u64,
        /// The names of its members, in the order of their ranks.
        members: Vec<String>,
        /// Why the last generation has ended, or why this one, the first, begins.
        reason: String,
    },
    /// A member of this node has not come back from the last generation: it hangs, and the launcher must kill
    /// it.
    MemberHung {
        /// The member's name.
        member: String,
    },
    /// Too few members have waited too long for others. They have been told, and no generation follows unless
    /// more come.
    TooFewMembers {
        /// Members that have waited.
        present: usize,
    },
    /// This coordinator does not belong to the job, or not any more; its members cannot go on.
    Detached {
        /// The reason, as a sentence.
        reason: String,
        /// Whether no member of this node can go on, because some wait for this coordinator or because the
        /// reason holds for all of them.
        ends_job: bool,
    },
    /// The launchers have lost each other, and another part of the job goes on, or may: this node's members
    /// must not.
    Superseded {
        /// Who goes on, or why others may, as a sentence.
        reason: String,
    },
    /// Something does not work as it should, and would go unnoticed where the launcher has no logger.
    Warning {
        /// What it is, as a sentence.
        text: String,
    },
    /// A launcher wanted to join that does not have this one's token.
    LauncherRefused {
        /// Its host.
        host: IpAddr,
    },
}
