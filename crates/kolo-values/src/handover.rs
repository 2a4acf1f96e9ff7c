//! The decision which ranks' parts of a divided state count when a group forms, and who sends what to whom.
//! It is a pure function of the ranks' reports, which all ranks have. Values may be divided like the state of
//! the optimizer, or be on all ranks.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartReport {
    /// Number of steps that its parts have made; `None` if it has nothing of the job's state.
    pub steps: Option<u64>,
    /// True if it has the sums of the next step of its own parts.
    pub is_ready: bool,
    /// True if it has all values that each rank is to have, not only those of its own parts.
    pub has_common_values: bool,
    /// Its own parts: runs of flat memory.
    pub own: Vec<Range<usize>>,
    /// Further state and values that it has kept since the last group formed. They are not stepped.
    pub kept: Holdings,
    /// Fingerprint of all initial values, where values are divided: of those that it has, or that it had
    /// before they were divided. `None` after the first step.
    pub initial: Option<u64>,
}

/// Treatment of a rank's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// They count as they are. Sums of a further step are discarded.
    Keeps,
    /// They count after the step whose sums the rank has.
    Steps,
    /// They do not count: the rank receives what it needs.
    Receives,
    /// It has all initial values of a job that has made no step.
    Begins,
}

/// Decision about all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Number of steps with which the group continues.
    pub steps: u64,
    /// Treatment of each rank's parts.
    pub roles: Vec<Role>,
}

/// Returns the decision; `None` if no rank has the job's state.
pub fn decide(reports: &[PartReport]) -> Option<Decision> {
    let steps = reports.iter().filter_map(|report| report.steps).max()?;
    let first = reports.iter().find(|report| report.steps == Some(0)).and_then(|report| report.initial);
    let role = |report: &PartReport| match report.steps {
        Some(own) if own == steps => Role::Keeps,
        Some(own) if own + 1 == steps && report.is_ready => Role::Steps,
        None if steps == 0 && first.is_some() && report.initial == first => Role::Begins,
        _ => Role::Receives,
    };
    Some(Decision { steps, roles: reports.iter().map(role).collect() })
}

/// Runs that no rank has any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Array of the optimizer's state, or of the values.
    pub name: StateName,
    /// Elements of flat memory.
    pub run: Range<usize>,
}

impl Decision {
    /// Returns what each rank has, of these arrays of the optimizer and of values, which all ranks have in
    /// the runs `common`.
    fn have(&self, reports: &[PartReport], arrays: &[StateName], common: &[Range<usize>]) -> Vec<Holdings> {
        let of = |(report, role): (&PartReport, &Role)| match role {
            Role::Receives => Holdings::default(),
            Role::Begins => runs_of(&values_name(), iter::once(0..usize::MAX)),
            Role::Steps => parts(arrays, &report.own),
            Role::Keeps => {
                let kept = report.kept.filtered(|name| arrays.contains(name) || *name == values_name());
                let common = if report.has_common_values { common } else { &[] };
                let common = runs_of(&values_name(), common.iter().cloned());
                Holdings::union(&[common, parts(arrays, &report.own), kept])
            }
        };
        reports.iter().zip(&self.roles).map(of).collect()
    }

    /// Returns the transfers after which each rank has the values of the runs `common`, and state and values
    /// of the parts that it owns by `owners`.
    ///
    /// # Errors
    ///
    /// The first runs that no rank has any more.
    pub fn transfers(
        &self,
        reports: &[PartReport],
        owners: &Owners,
        arrays: &[StateName],
        common: &[Range<usize>],
    ) -> Result<Vec<Transfer>, Missing> {
        let have = self.have(reports, arrays, common);
        let want = |rank: usize| {
            let own: Vec<Range<usize>> = owners.runs_of(Rank(rank)).collect();
            Holdings::union(&[runs_of(&values_name(), common.iter().cloned()), parts(arrays, &own)])
        };
        let want: Vec<Holdings> = (0..reports.len()).map(want).collect();
        let missing = Holdings::union(&have).first_missing(&Holdings::union(&want));
        let whole = |(name, run)| Missing { name, run };
        match redistribute(&have, &want) {
            Ok(transfers) => Ok(transfers),
            Err(_) => Err(missing.map_or(Missing { name: values_name(), run: 0..0 }, whole)),
        }
    }
}

/// Returns values and arrays of an optimizer in these runs.
fn parts(arrays: &[StateName], runs: &[Range<usize>]) -> Holdings {
    let names = iter::once(values_name()).chain(arrays.iter().cloned());
    Holdings(names.flat_map(|name| runs_of(&name, runs.iter().cloned()).0).collect())
}

fn runs_of(name: &StateName, runs: impl Iterator<Item = Range<usize>>) -> Holdings {
    Holdings(runs.map(|run| (name.clone(), run)).collect())
}

/// Name of the values among the arrays of state.
fn values_name() -> StateName {
    StateName::of_job(StateKind::Weights, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::{Kind, Layout, ParamSpec, Scope};

    /// A rank of the first group may be in the job while the others are not yet: these still have all initial
    /// values.
    #[test]
    fn initial_values_that_are_equal_replace_lost_parts() {
        let report = |steps, own: &[Range<usize>], initial| PartReport {
            steps,
            own: own.to_vec(),
            has_common_values: steps.is_some(),
            initial: Some(initial),
            ..PartReport::default()
        };
        let own = std::slice::from_ref(&(0..2));
        let specs = vec![ParamSpec::new("a", vec![4], Kind::Parameter { decay: false })];
        let owners = Owners::split(&Layout::new(specs), Scope::Element, &[0, 1].map(Rank), 2);
        for (initial, is_whole) in [(7, true), (8, false)] {
            let reports = [report(Some(0), own, 7), report(None, &[], initial)];
            let decision = decide(&reports).unwrap();
            assert_eq!(decision.roles, [Role::Keeps, if is_whole { Role::Begins } else { Role::Receives }]);
            let transfers = decision.transfers(&reports, &owners, &[], &[]);
            assert_eq!(transfers.is_ok(), is_whole, "{transfers:?}");
        }
    }
}
