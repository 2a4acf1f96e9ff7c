//! Every way in which ranks can die at the end of a step, and while the next group forms: what counts is
//! right, and nothing is lost of which a living rank has a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kolo_comm::Rank;
use kolo_optim::{Kind, Layout, ParamSpec, Scope};
use kolo_reduction::Owners;
use kolo_reduction::state::{Holdings, StateKind, StateName};
use kolo_testing::subsets;

use crate::handover::{PartReport, Role, decide};

/// Steps of all parts before the one that fails.
const BEFORE: u64 = 5;

/// State of a rank: for each element of flat memory, which is a part of its own, the number of steps that its
/// value and its optimizer state have taken. All ranks have the values of the first `common` elements.
#[derive(Clone, Debug, Default)]
struct Holder {
    /// `None` before it has the job's state.
    steps: Option<u64>,
    is_ready: bool,
    common: usize,
    values: BTreeMap<usize, u64>,
    own: BTreeMap<usize, u64>,
    kept: BTreeMap<usize, u64>,
    kept_values: BTreeMap<usize, u64>,
}

fn array() -> StateName {
    StateName::of_job(StateKind::Optimizer, "m")
}

fn values_name() -> StateName {
    StateName::of_job(StateKind::Weights, "")
}

impl Holder {
    fn report(&self) -> PartReport {
        let runs = |parts: &BTreeMap<usize, u64>| -> Vec<Range<usize>> {
            parts.keys().map(|part| *part..part + 1).collect()
        };
        PartReport {
            steps: self.steps,
            is_ready: self.is_ready,
            has_common_values: (0..self.common).all(|part| self.values.get(&part).copied() == self.steps),
            own: runs(&self.own),
            kept: Holdings(
                [(array(), &self.kept), (values_name(), &self.kept_values)]
                    .into_iter()
                    .flat_map(|(name, parts)| runs(parts).into_iter().map(move |run| (name.clone(), run)))
                    .collect(),
            ),
            initial: None,
        }
    }

    /// Steps its own parts.
    fn step(&mut self) {
        for (part, steps) in &mut self.own {
            *steps += 1;
            self.values.insert(*part, *steps);
        }
        self.steps = self.steps.map(|steps| steps + 1);
        self.is_ready = false;
        self.kept.clear();
        self.kept_values.clear();
    }
}

/// Stage of a rank at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Summing,
    Ready,
    Stepped,
    Whole,
}

const STAGES: [Stage; 4] = [Stage::Summing, Stage::Ready, Stage::Stepped, Stage::Whole];

/// All stages of so many ranks that can occur together: no rank has stepped its parts before all have their
/// sums, and none has all new values before all have stepped.
fn stages(ranks: usize) -> Vec<Vec<Stage>> {
    kolo_testing::stages(ranks, &STAGES, |most| match most {
        Stage::Summing | Stage::Ready => Stage::Summing,
        Stage::Stepped => Stage::Ready,
        Stage::Whole => Stage::Stepped,
    })
}

fn owners(parts: usize, ranks: usize, redundancy: usize) -> Owners {
    let kind = Kind::Parameter { decay: false };
    let specs = (0..parts).map(|part| ParamSpec::new(part.to_string(), vec![1], kind)).collect();
    let ranks: Vec<Rank> = (0..ranks).map(Rank).collect();
    Owners::split(&Layout::new(specs), Scope::Tensor, &ranks, redundancy)
}

fn parts_of(owners: &Owners, rank: usize) -> BTreeSet<usize> {
    owners.runs_of(Rank(rank)).flatten().collect()
}

/// Returns ranks at these stages of a step, in the group in which they hold `before`.
fn at(stages: &[Stage], before: &[Holder]) -> Vec<Holder> {
    let mut holders = before.to_vec();
    for (holder, stage) in holders.iter_mut().zip(stages) {
        match stage {
            Stage::Summing => {}
            Stage::Ready => holder.is_ready = true,
            Stage::Stepped => holder.step(),
            Stage::Whole => {
                holder.step();
                let steps = holder.steps.unwrap();
                holder.values.extend((0..holder.common).map(|part| (part, steps)));
            }
        }
    }
    holders
}

/// Lets ranks meet. Returns what each holds when it has received what it needs, or `None` if a part is lost;
/// and what each held just before.
fn meet(mut holders: Vec<Holder>, parts: usize, redundancy: usize) -> (Option<Vec<Holder>>, Vec<Holder>) {
    let reports: Vec<PartReport> = holders.iter().map(Holder::report).collect();
    let decision = decide(&reports).unwrap();
    let steps = decision.steps;
    for (holder, role) in holders.iter_mut().zip(&decision.roles) {
        match role {
            Role::Steps => holder.step(),
            Role::Keeps | Role::Receives | Role::Begins => holder.is_ready = false,
        }
    }
    let counts = |rank: usize| decision.roles[rank] != Role::Receives;
    // All that counts is as old as everything else.
    for (rank, holder) in holders.iter().enumerate().filter(|(rank, _)| counts(*rank)) {
        assert_eq!(holder.steps, Some(steps));
        assert!(
            holder.own.values().chain(holder.kept.values()).all(|own| *own == steps),
            "{rank}: {holder:?}"
        );
    }
    let owners = owners(parts, holders.len(), redundancy);
    let (array, common) = (array(), holders[0].common);
    let has = |part: usize| {
        let has =
            |rank: usize| holders[rank].own.contains_key(&part) || holders[rank].kept.contains_key(&part);
        (0..holders.len()).any(|rank| counts(rank) && has(rank))
    };
    let transfers = match decision.transfers(
        &reports,
        &owners,
        std::slice::from_ref(&array),
        std::slice::from_ref(&(0..common)),
    ) {
        Ok(transfers) => transfers,
        Err(missing) => {
            assert!(!missing.run.clone().all(has), "{missing:?} of {holders:?}");
            return (None, holders);
        }
    };
    assert!((0..parts).all(has), "{holders:?}");
    let new = |rank: usize| {
        let old = &holders[rank];
        let is_counted = counts(rank);
        let (mut values, mut state): (BTreeMap<usize, u64>, BTreeMap<usize, u64>) = Default::default();
        if is_counted {
            values.extend(old.kept_values.iter().chain(&old.values));
            state.extend(old.kept.iter().chain(&old.own));
        }
        for transfer in transfers.iter().filter(|transfer| transfer.to.contains(&Rank(rank))) {
            let from = &holders[transfer.from.0];
            for part in transfer.place.clone() {
                if transfer.name == array {
                    state.insert(part, *from.own.get(&part).unwrap_or_else(|| &from.kept[&part]));
                } else {
                    values.insert(part, *from.values.get(&part).unwrap_or_else(|| &from.kept_values[&part]));
                }
            }
        }
        assert!(
            values.values().chain(state.values()).all(|of| *of == steps),
            "rank {rank}: {values:?} {state:?}"
        );
        let of = |from: &BTreeMap<usize, u64>| -> BTreeMap<usize, u64> {
            parts_of(&owners, rank).into_iter().map(|part| (part, from[&part])).collect()
        };
        let (own, mut held) = (of(&state), of(&values));
        held.extend((0..common).map(|part| (part, values[&part])));
        let kept_values = if common < parts { values } else { BTreeMap::new() };
        Holder { steps: Some(steps), is_ready: false, common, values: held, own, kept: state, kept_values }
    };
    let new = (0..holders.len()).map(new).collect();
    (Some(new), holders)
}

/// A group that begins.
fn begin(parts: usize, common: usize, ranks: usize, redundancy: usize) -> Vec<Holder> {
    let owners = owners(parts, ranks, redundancy);
    let holder = |rank| {
        let own: BTreeMap<usize, u64> =
            parts_of(&owners, rank).into_iter().map(|part| (part, BEFORE)).collect();
        let values = own.keys().copied().chain(0..common).map(|part| (part, BEFORE)).collect();
        Holder { steps: Some(BEFORE), common, values, own, ..Holder::default() }
    };
    (0..ranks).map(holder).collect()
}

fn living(holders: &[Holder], alive: &BTreeSet<usize>) -> Vec<Holder> {
    alive.iter().map(|rank| holders[*rank].clone()).collect()
}

/// Checks all deaths in a step of a group that holds `before`; calls `then` with each group that forms, and
/// what its ranks held before it did. Returns the number of cases.
fn check_step(
    before: &[Holder],
    parts: usize,
    redundancy: usize,
    mut then: impl FnMut(&[Holder], &[Holder]),
) -> usize {
    let mut cases = 0;
    let steps = before[0].steps.unwrap();
    for stages in stages(before.len()) {
        let holders = at(&stages, before);
        for alive in subsets::<BTreeSet<_>>(before.len()).filter(|alive| !alive.is_empty()) {
            for newcomers in 0..2 {
                let mut members = living(&holders, &alive);
                members.extend(vec![Holder { common: before[0].common, ..Holder::default() }; newcomers]);
                let (new, old) = meet(members, parts, redundancy);
                cases += 1;
                let has_stepped = alive.iter().any(|rank| stages[*rank] >= Stage::Stepped);
                let owned = |part: usize| alive.iter().any(|rank| before[*rank].own.contains_key(&part));
                match &new {
                    Some(new) => {
                        assert_eq!(
                            new[0].steps,
                            Some(steps + u64::from(has_stepped)),
                            "{stages:?} {alive:?}"
                        );
                        then(new, &old);
                    }
                    // While some ranks may not have joined before, others have what they kept for them.
                    None => assert!(!(0..parts).all(owned), "{stages:?} {alive:?}"),
                }
            }
        }
    }
    cases
}

#[test]
fn a_part_is_lost_only_with_all_of_its_owners() {
    for (ranks, redundancy) in [(2, 2), (3, 2), (4, 2), (4, 3), (5, 2)] {
        let parts = ranks + 1;
        // All values on all ranks, some, or none.
        for common in [parts, 1, 0] {
            let cases = check_step(&begin(parts, common, ranks, redundancy), parts, redundancy, |_, _| {});
            assert!(cases >= 60, "{cases}");
        }
    }
}

/// After a first death, some ranks have received all that they need when others die; and others die in the
/// first step of the new group.
#[test]
fn deaths_while_a_group_forms_lose_only_what_no_living_rank_has() {
    [4, 1].into_iter().for_each(check_forming);
}

fn check_forming(common: usize) {
    const PARTS: usize = 4;
    let mut cases = 0;
    check_step(&begin(PARTS, common, 3, 2), PARTS, 2, |new, old| {
        for installed in subsets::<BTreeSet<_>>(new.len()) {
            let now = |rank: usize| if installed.contains(&rank) { &new[rank] } else { &old[rank] };
            let holders: Vec<Holder> = (0..new.len()).map(|rank| now(rank).clone()).collect();
            for alive in subsets::<BTreeSet<_>>(new.len())
                .filter(|alive| alive.iter().any(|rank| holders[*rank].steps.is_some()))
            {
                let had = |part: usize| {
                    let counts = |rank: &usize| old[*rank].steps == new[0].steps;
                    alive
                        .iter()
                        .filter(|rank| counts(rank))
                        .any(|rank| old[*rank].own.contains_key(&part) || old[*rank].kept.contains_key(&part))
                };
                let (again, _) = meet(living(&holders, &alive), PARTS, 2);
                assert!(again.is_some() || !(0..PARTS).all(had), "{installed:?} {alive:?}");
                cases += 1;
            }
        }
        if new.len() == 3 && new.iter().any(|holder| !holder.kept.is_empty()) {
            cases += check_step(new, PARTS, 2, |_, _| {});
        }
    });
    assert!(cases > 10_000, "{cases}");
}
