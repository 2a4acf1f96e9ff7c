//! What a leader can decide to do about the workers of its job.

use std::time::Duration;

/// A member that waits for an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The member's name.
    pub(crate) member: String,
    /// The number of the arrival that is to be answered.
    pub(crate) arrival: u64,
}

/// What the leader does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing, until something happens or time has passed.
    Wait,
    /// A generation begins, with these members in the order of their ranks.
    FormGeneration(Vec<Candidate>),
    /// The members of the running generation are asked to arrive again after a step that they agree on.
    RequestRegroup,
    /// The running generation has no members any more, and those who wait are too few for another one.
    EndGeneration,
    /// These members hang: their launchers kill them.
    Evict(Vec<String>),
    /// These members, of which so many train, have waited so long for others, and are told that they are too
    /// few.
    GiveUp { candidates: Vec<Candidate>, present: usize, waited: Duration },
    /// The job's state is lost with the members that held it; those who wait are told.
    ReportStateLost(Vec<Candidate>),
}

/// An action and why it is the right one. The reason of a generation is the one that users read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) action: Action,
    pub(crate) reason: String,
}

impl Decision {
    pub(super) fn new(action: Action, reason: impl Into<String>) -> Decision {
        Decision { action, reason: reason.into() }
    }
}
