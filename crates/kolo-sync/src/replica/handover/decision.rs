//! The decision which ranks' parts of a divided state count when a group forms, and who sends what to whom.
//! It is a pure function of the ranks' reports, which all ranks have.
//!
//! Each part has several owners, which make the same updates. A step ends in three stages on each rank:
//!
//! 1. The sums of the gradients of its own parts have arrived. It waits for the other ranks.
//! 2. All ranks have theirs. It steps its parts, and sends the new values to all ranks.
//! 3. It has the new values of all parts.
//!
//! No rank gets to stage 2 before all are in stage 1. So if any rank has stepped its parts, every survivor
//! has its sums, and steps its own as well when the next group forms. If no survivor has, all discard the
//! step and repeat it. In either case all parts are as old as each other, so no rank keeps old versions of
//! anything.

use std::iter;
use std::ops::Range;

use kolo_comm::Rank;
use kolo_reduction::Owners;
use kolo_reduction::state::{Holdings, StateKind, StateName, Transfer, redistribute};
use serde::{Deserialize, Serialize};

/// Report of a rank about its parts of the divided state when a group forms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PartReport {
    /// Number of steps that its parts have made; `None` if it has nothing of the job's state.
    pub(crate) steps: Option<u64>,
    /// True if it has the sums of the next step of its own parts.
    pub(crate) is_ready: bool,
    /// True if it has the values of all parts, not only of its own.
    pub(crate) has_all_values: bool,
    /// Its own parts: runs of flat memory.
    pub(crate) own: Vec<Range<usize>>,
    /// Further runs whose state it has kept since the last group formed. They are not stepped.
    pub(crate) kept: Vec<Range<usize>>,
}

/// Treatment of a rank's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// They count as they are. Sums of a further step are discarded.
    Keeps,
    /// They count after the step whose sums the rank has.
    Steps,
    /// They do not count: the rank receives what it needs.
    Receives,
}

/// Decision about all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Number of steps with which the group continues.
    pub(crate) steps: u64,
    /// Treatment of each rank's parts.
    pub(crate) roles: Vec<Role>,
}

/// Returns the decision; `None` if no rank has the job's state.
pub(crate) fn decide(reports: &[PartReport]) -> Option<Decision> {
    let steps = reports.iter().filter_map(|report| report.steps).max()?;
    let role = |report: &PartReport| match report.steps {
        Some(own) if own == steps => Role::Keeps,
        Some(own) if own + 1 == steps && report.is_ready => Role::Steps,
        _ => Role::Receives,
    };
    Some(Decision { steps, roles: reports.iter().map(role).collect() })
}

/// Runs that no rank has any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Array of the optimizer's state, or of the values.
    pub(crate) name: StateName,
    /// Elements of flat memory.
    pub(crate) run: Range<usize>,
}

impl Decision {
    /// Returns what each rank has, of these arrays of the optimizer and of `len` values.
    fn have(&self, reports: &[PartReport], arrays: &[StateName], len: usize) -> Vec<Holdings> {
        let of = |(report, role): (&PartReport, &Role)| {
            let kept = if *role == Role::Keeps { &report.kept[..] } else { &[] };
            let runs = || report.own.iter().chain(kept).cloned();
            let values = match role {
                Role::Receives => return Holdings::default(),
                Role::Keeps if report.has_all_values => iter::once(0..len).collect(),
                Role::Keeps | Role::Steps => report.own.clone(),
            };
            let state = arrays.iter().flat_map(|name| runs().map(|run| (name.clone(), run)));
            Holdings(values.into_iter().map(|run| (values_name(), run)).chain(state).collect())
        };
        reports.iter().zip(&self.roles).map(of).collect()
    }

    /// Returns the transfers after which each rank has all values, and the state of the parts that it owns by
    /// `owners`.
    ///
    /// # Errors
    ///
    /// The first runs that no rank has any more.
    pub(crate) fn transfers(
        &self,
        reports: &[PartReport],
        owners: &Owners,
        arrays: &[StateName],
        len: usize,
    ) -> Result<Vec<Transfer>, Missing> {
        let have = self.have(reports, arrays, len);
        let want = |rank: usize| {
            let runs = || owners.runs_of(Rank(rank));
            let state = arrays.iter().flat_map(|name| runs().map(|run| (name.clone(), run)));
            Holdings([(values_name(), 0..len)].into_iter().chain(state).collect())
        };
        let want: Vec<Holdings> = (0..reports.len()).map(want).collect();
        let missing = Holdings::union(&have).first_missing(&Holdings::union(&want));
        let whole = |(name, run)| Missing { name, run };
        match redistribute(&have, &want) {
            Ok(transfers) => Ok(transfers),
            Err(_) => Err(missing.map_or(Missing { name: values_name(), run: 0..len }, whole)),
        }
    }
}

/// Name of the values among the arrays of state.
fn values_name() -> StateName {
    StateName::of_job(StateKind::Weights, "")
}
