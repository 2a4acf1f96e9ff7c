//! The leader's possible actions on the workers of its job.

use std::time::Duration;

/// A member that waits for an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) member: String,
    /// Number of the arrival that the leader must answer.
    pub(crate) arrival: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing, until an event or the passing of time changes the decision.
    Wait,
    /// A generation begins, with these members in the order of their ranks.
    FormGeneration(Vec<Candidate>),
    /// The leader asks the running generation's members to arrive again after a step that they agree on.
    RequestRegroup,
    /// The running generation has no members any more, and too few members wait for another one.
    EndGeneration,
    /// These members hang: their launchers kill them.
    Evict(Vec<String>),
    /// These members, `present` of them training, have waited too long: too few others have come.
    GiveUp { candidates: Vec<Candidate>, present: usize, waited: Duration },
    /// The job's state is lost with the members that held it. The leader informs the waiting members.
    ReportStateLost(Vec<Candidate>),
}

/// An action and its reason. Users read the reason of a generation.
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
