//! The leader's possible actions on the workers of its job.

use std::time::Duration;

use crate::events::Obstacle;

/// A member that waits for an assignment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    pub(crate) member: String,
    /// Number of the arrival that the leader must answer.
    pub(crate) arrival: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// The waiting members, `present` of them training, have waited too long: too few others have come.
    GiveUp(GivingUp),
    /// A member cannot begin, and the job with it.
    Abandon(Obstacle),
    /// The job's state is lost with the members that held it. The leader informs the waiting members.
    ReportStateLost(Vec<Candidate>),
}

/// The end of a job that has too few members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GivingUp {
    /// Members that form a last group to save the state, in the order of their ranks: they hold it, or serve.
    pub(crate) survivors: Vec<Candidate>,
    pub(crate) others: Vec<Candidate>,
    pub(crate) present: usize,
    pub(crate) waited: Duration,
}

/// An action and its reason. Users read the reason of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Decision {
    pub(crate) action: Action,
    pub(crate) reason: String,
}

impl Decision {
    pub(super) fn new(action: Action, reason: impl Into<String>) -> Decision {
        Decision { action, reason: reason.into() }
    }
}
