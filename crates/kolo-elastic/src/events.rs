//! Events of members, and the events that a coordinator reports to its launcher.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::worker_protocol::Arrival;

/// End of the text of [`MemberExit::Failed`], and of the next generation's reason, for a member that failed
/// because its input is wrong: others that meet the same input fail as well.
pub const WRONG_INPUT: &str = "wrong input";

/// The end of a member's process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberExit {
    /// The member has completed its work, or has left the job in good order.
    Clean,
    /// The member has failed. The text completes a sentence that begins with its name: `was killed by
    /// SIGKILL`.
    Failed(String),
    /// The member has failed, with a text as for [`MemberExit::Failed`], because it lacks what it needs to
    /// begin. A job that has not begun ends on all nodes; one that has begun continues without the member.
    CannotBegin {
        /// The failure, as the end of a sentence.
        how: String,
        /// Input or resource that the member lacks.
        obstacle: Obstacle,
    },
}

/// Something that keeps a worker from beginning: wrong input, or no room on its host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Obstacle {
    /// The obstacle and its node, as a sentence.
    pub reason: String,
    /// True if the user's input is wrong.
    pub is_input: bool,
}

/// Reason why a launcher starts no more workers. Of several reasons the last in this list counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EndCause {
    /// A signal or a time limit asks the job to end. Its workers save the work and leave; until they have,
    /// they form generations.
    Asked,
    /// Workers have failed. A job that has not begun does not begin; the workers of one that has begun save
    /// the work.
    Failed,
    /// Too few workers are left. They form no generation, only groups that save the work.
    TooFew,
}

/// An event that a launcher or a worker reports about a member. The leader receives the events of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum MemberEvent {
    /// The launcher has started the member's process.
    Started,
    /// The member has arrived at its coordinator and waits for an assignment.
    Arrived(Arrival),
    /// The member's process has used this much CPU time since it began.
    CpuTime(Duration),
    /// The member's process does not arrive, because this setting makes it part of a group that needs all
    /// of its workers.
    Fixed(String),
    /// A signal has stopped the member's process, or it has continued.
    Stopped(bool),
    /// The member's process has ended.
    Exited(MemberExit),
}

/// An event that a coordinator reports to the launcher that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CoordinatorEvent {
    /// A generation has begun.
    GenerationFormed {
        /// The generation's number, from 1.
        generation: u64,
        /// Names of its members, in the order of their ranks.
        members: Vec<String>,
        /// Reason for the end of the last generation, or for the beginning of the first.
        reason: String,
    },
    /// This launcher has joined a job of several nodes that another one leads.
    Joined {
        /// This launcher's node.
        node_rank: usize,
        /// The node whose launcher leads, and its address.
        leader: Option<(usize, SocketAddr)>,
    },
    /// A member of this node has not come back from the last generation: it hangs, and must be killed.
    MemberHung {
        /// The member's name.
        member: String,
        /// Reason to kill it, as the end of a sentence that begins with its name.
        reason: String,
    },
    /// Too few members have waited too long. Each has got an error; no generation follows unless more arrive.
    TooFewMembers {
        /// Number of members that have waited.
        present: usize,
    },
    /// A worker of some node cannot begin, so the job does not begin, and members of this node wait for it:
    /// they must end. The event may be repeated.
    CannotBegin(Obstacle),
    /// All members that held the job's state have died. Those that wait have got an error, and so would
    /// others.
    StateLost,
    /// This coordinator does not belong to the job, or no longer does; its members cannot go on.
    Detached {
        /// The reason, as a sentence.
        reason: String,
        /// True if no member of this node can go on: some wait for this coordinator, or the reason holds for
        /// all.
        ends_job: bool,
    },
    /// The launchers have lost each other. Another part of the job goes on, or may; this node's members must
    /// not.
    Superseded {
        /// The part that goes on, or the reason why another one may, as a sentence.
        reason: String,
    },
    /// A problem that would go unnoticed if the launcher has no logger.
    Warning {
        /// The problem, as a sentence.
        text: String,
    },
    /// For too long, no thread could be started for the members of this node, before the job has begun. The
    /// text is the operating system's reason.
    WithoutThreads {
        /// The reason.
        cause: String,
    },
    /// A launcher with another token wanted to join.
    LauncherRefused {
        /// The launcher's host.
        host: IpAddr,
    },
}
