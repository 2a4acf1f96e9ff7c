//! The decision about a step that was interrupted when a group forms: repeat it, or complete it. It is a pure
//! function of the workers' reports, which all workers have.
//!
//! Workers that are gone do not report, but the memory tells whether one of them has begun the update. Nobody
//! begins it before all workers have put their sums there and have all else that the end of the step needs.
//! So if it has begun, each survivor of that group can complete it. If it has not, nothing has changed.

use kolo_values::MemoryPlace;
use serde::{Deserialize, Serialize};

/// Report of a worker when a group forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// Number of steps that it has completed; `None` if it has nothing of the job's state.
    pub steps: Option<u64>,
    /// Number of updates after which its current values are.
    pub updates: u64,
    /// True if it has everything to end one more step.
    pub is_ready: bool,
    /// True if that step has no update, because a value of it has overflowed.
    pub is_skipped: bool,
    /// Number of the last update that has begun, by the memory.
    pub begun: u64,
    /// Place of the memory, if it has that.
    pub memory: Option<MemoryPlace>,
}

/// Treatment of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its steps count as they are.
    Keeps,
    /// It discards its sums, and repeats the step.
    Repeats,
    /// It completes the step.
    Completes,
    /// It maps the memory, and receives all else.
    Receives,
}

/// Decision about all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Number of steps with which the group continues.
    pub steps: u64,
    /// Number of updates after which the current values are.
    pub updates: u64,
    /// Treatment of each worker.
    pub roles: Vec<Role>,
    /// Worker of whose state the newcomers receive a copy, and whose memory they map.
    pub donor: usize,
    /// Place of that memory.
    pub memory: MemoryPlace,
}

impl Decision {
    /// Workers that complete the step.
    pub fn completing(&self) -> Vec<usize> {
        (0..self.roles.len()).filter(|worker| self.roles[*worker] == Role::Completes).collect()
    }
}

/// Returns the decision; `None` if no worker has the job's state.
pub fn decide(reports: &[HostReport]) -> Option<Decision> {
    let begun = reports.iter().map(|report| report.begun).max()?;
    let most = reports.iter().filter_map(|report| report.steps).max()?;
    let role = |report: &HostReport| match report.steps {
        None => Role::Receives,
        Some(_) if report.is_ready && !report.is_skipped && report.updates < begun => Role::Completes,
        // Others have ended the step without an update.
        Some(steps) if report.is_ready && report.is_skipped && steps < most => Role::Completes,
        Some(_) if report.is_ready => Role::Repeats,
        Some(_) => Role::Keeps,
    };
    let roles: Vec<Role> = reports.iter().map(role).collect();
    let counted = |(report, role): (&HostReport, &Role)| {
        report.steps.map(|steps| steps + u64::from(*role == Role::Completes))
    };
    let steps = reports.iter().zip(&roles).filter_map(counted).max()?;
    let mut all = reports.iter().zip(&roles).enumerate();
    let is_donor = |(_, pair): &(usize, (&HostReport, &Role))| counted(*pair) == Some(steps);
    let (donor, memory) =
        all.find(is_donor).and_then(|(donor, (report, _))| Some((donor, report.memory?)))?;
    Some(Decision { steps, updates: begun, roles, donor, memory })
}
