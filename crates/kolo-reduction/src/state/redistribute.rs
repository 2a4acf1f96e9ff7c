//! The decision which rank sends which state to whom.

use std::collections::HashMap;
use std::ops::Range;

use kolo_comm::Rank;
use serde::{Deserialize, Serialize};

use super::part::{StateName, StatePart, Visit};
use crate::error::Error;

/// Runs of arrays that a rank has, or wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings(pub Vec<(StateName, Range<usize>)>);

impl Holdings {
    /// Returns the runs of the state that `list` visits, as few as possible, in the order of the arrays.
    pub fn of(list: impl FnOnce(&mut Visit<'_>)) -> Self {
        let mut parts: Vec<(StateName, Range<usize>)> = Vec::new();
        list(&mut |StatePart { name, place, .. }| parts.push((name, place)));
        let mut runs = Vec::new();
        for array in parts.chunk_by_mut(|a, b| a.0 == b.0) {
            array.sort_by_key(|(_, place)| (place.start, place.end));
            for run in array.chunk_by(|(_, a), (_, b)| a.end == b.start) {
                runs.push((run[0].0.clone(), run[0].1.start..run[run.len() - 1].1.end));
            }
        }
        Holdings(runs)
    }

    /// Returns what any of these ranks has, in runs that neither overlap nor touch; the arrays are in the
    /// order in which they first occur.
    pub fn union(all: &[Holdings]) -> Self {
        let mut names: Vec<&StateName> = Vec::new();
        let mut runs: HashMap<&StateName, Vec<&Range<usize>>> = HashMap::new();
        for (name, run) in all.iter().flat_map(|holdings| &holdings.0) {
            let of_name = runs.entry(name).or_default();
            if of_name.is_empty() {
                names.push(name);
            }
            of_name.push(run);
        }
        let mut united: Vec<(StateName, Range<usize>)> = Vec::new();
        for name in names {
            let mut of_name = runs.remove(name).unwrap_or_default();
            of_name.sort_by_key(|run| (run.start, run.end));
            let mut merged: Vec<Range<usize>> = Vec::new();
            for run in of_name {
                match merged.last_mut() {
                    Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                    _ => merged.push(run.clone()),
                }
            }
            united.extend(merged.into_iter().map(|run| (name.clone(), run)));
        }
        Holdings(united)
    }

    /// Returns the first run of `wanted` that no run here has, or a part of it.
    pub fn first_missing(&self, wanted: &Holdings) -> Option<(StateName, Range<usize>)> {
        wanted.0.iter().find_map(|(name, run)| {
            let mut missing = vec![run.clone()];
            for (_, own) in self.0.iter().filter(|(of, _)| of == name) {
                cut(&mut missing, own);
            }
            missing.into_iter().find(|run| !run.is_empty()).map(|run| (name.clone(), run))
        })
    }

    /// Returns the runs of arrays with such names.
    pub fn filtered(&self, wanted: impl Fn(&StateName) -> bool) -> Self {
        Holdings(self.0.iter().filter(|(name, _)| wanted(name)).cloned().collect())
    }
}

/// A run of an array that one rank sends to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Name of the array.
    pub name: StateName,
    /// Elements of flat memory.
    pub place: Range<usize>,
    /// Rank that sends them.
    pub from: Rank,
    /// Ranks that receive them.
    pub to: Vec<Rank>,
}

/// Returns the transfers after which each rank has what it wants: `have` and `want` list each rank's runs. A
/// rank receives nothing that it has itself; of several other holders the first one sends.
///
/// # Errors
///
/// Nobody has something that a rank wants.
pub fn redistribute(have: &[Holdings], want: &[Holdings]) -> Result<Vec<Transfer>, Error> {
    let mut holders: HashMap<&StateName, Vec<(usize, &Range<usize>)>> = HashMap::new();
    for (rank, Holdings(runs)) in have.iter().enumerate() {
        runs.iter().for_each(|(name, run)| holders.entry(name).or_default().push((rank, run)));
    }
    let mut transfers: Vec<Transfer> = Vec::new();
    let mut known: HashMap<(&StateName, usize, usize, usize), usize> = HashMap::new();
    for (rank, Holdings(wanted)) in want.iter().enumerate() {
        for (name, wanted) in wanted {
            let mut missing = vec![wanted.clone()];
            let of_name = holders.get(name).map_or(&[][..], |holders| holders);
            let own = of_name.iter().filter(|(holder, _)| *holder == rank);
            for (holder, run) in own.chain(of_name.iter().filter(|(holder, _)| *holder != rank)) {
                for place in cut(&mut missing, run) {
                    if *holder == rank {
                        continue;
                    }
                    let key = (name, place.start, place.end, *holder);
                    let index = *known.entry(key).or_insert(transfers.len());
                    if index == transfers.len() {
                        let (name, from) = (name.clone(), Rank(*holder));
                        transfers.push(Transfer { name, place, from, to: Vec::new() });
                    }
                    transfers[index].to.push(Rank(rank));
                }
            }
            if missing.iter().any(|run| !run.is_empty()) {
                return Err(Error::Lost);
            }
        }
    }
    Ok(transfers)
}

/// Runs of flat memory.
type Runs = Vec<Range<usize>>;

/// Returns who sends which parts of a run, of which each rank has the runs in `have`: of several holders the
/// first one. What is in no rank's runs is returned apart.
pub fn senders(have: &[Runs], wanted: &Range<usize>) -> (Vec<(Rank, Runs)>, Runs) {
    let (mut missing, mut found) = (vec![wanted.clone()], Vec::new());
    for (rank, runs) in have.iter().enumerate() {
        let touches = |run: &&Range<usize>| run.start < wanted.end && wanted.start < run.end;
        let parts: Vec<_> = runs.iter().filter(touches).flat_map(|run| cut(&mut missing, run)).collect();
        if !parts.is_empty() {
            found.push((Rank(rank), parts));
        }
    }
    (found, missing)
}

/// Takes the elements of a run out of those that are missing, and returns them.
fn cut(missing: &mut Vec<Range<usize>>, run: &Range<usize>) -> Vec<Range<usize>> {
    let (mut found, mut rest) = (Vec::new(), Vec::new());
    for gap in missing.drain(..) {
        let common = gap.start.max(run.start)..gap.end.min(run.end);
        if common.is_empty() {
            rest.push(gap);
            continue;
        }
        rest.extend(
            [gap.start..common.start, common.end..gap.end].into_iter().filter(|rest| !rest.is_empty()),
        );
        found.push(common);
    }
    *missing = rest;
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateKind;

    fn name(name: &str, shard: usize) -> StateName {
        StateName::of_shard(StateKind::Reduction, name, shard)
    }

    fn holdings(runs: &[(usize, Range<usize>)]) -> Holdings {
        Holdings(runs.iter().map(|(shard, run)| (name("e", *shard), run.clone())).collect())
    }

    fn found(have: &[Holdings], want: &[Holdings]) -> Vec<(usize, Range<usize>, usize, Vec<usize>)> {
        let transfers = redistribute(have, want).unwrap().into_iter();
        let to = |ranks: Vec<Rank>| ranks.into_iter().map(|rank| rank.0).collect();
        transfers.map(|t| (t.name.shard.unwrap(), t.place, t.from.0, to(t.to))).collect()
    }

    #[test]
    fn each_rank_gets_what_it_wants_from_the_first_that_has_it() {
        let whole =
            |shards: &[usize]| holdings(&shards.iter().map(|shard| (*shard, 0..10)).collect::<Vec<_>>());
        let have = [whole(&[0, 1]), whole(&[1, 2]), whole(&[])];
        assert_eq!(found(&have, &have), []);
        let want = [whole(&[0, 1, 2]), whole(&[1]), whole(&[1, 2])];
        assert_eq!(found(&have, &want), [(2, 0..10, 1, vec![0, 2]), (1, 0..10, 0, vec![2])]);
        assert!(redistribute(&have, &[whole(&[3])]).is_err());
    }

    #[test]
    fn owners_of_ranges_make_up_a_whole() {
        let have = [holdings(&[(0, 0..4)]), holdings(&[(0, 4..8)]), holdings(&[(0, 6..10)])];
        let want = [holdings(&[(0, 0..10)]), holdings(&[(0, 0..5)]), holdings(&[])];
        let expected = [(0, 4..8, 1, vec![0]), (0, 8..10, 2, vec![0]), (0, 0..4, 0, vec![1])];
        assert_eq!(found(&have, &want), expected);
        // Nobody has the last element.
        assert!(redistribute(&have, &[holdings(&[(0, 0..11)])]).is_err());
        assert_eq!(found(&[holdings(&[(0, 0..0)])], &[holdings(&[(0, 0..0)]), holdings(&[(0, 0..0)])]), []);
    }

    #[test]
    fn each_part_of_a_run_has_one_sender() {
        let one = |start: usize, end: usize| -> Runs { std::iter::once(start..end).collect() };
        let have = [one(0, 4), vec![2..6, 8..10], vec![0..3, 9..12]];
        let found = |wanted| {
            let (senders, missing) = senders(&have, &wanted);
            (senders.into_iter().map(|(rank, parts)| (rank.0, parts)).collect::<Vec<_>>(), missing)
        };
        assert_eq!(found(1..3), (vec![(0, one(1, 3))], vec![]));
        assert_eq!(
            found(0..13),
            (vec![(0, one(0, 4)), (1, vec![4..6, 8..10]), (2, one(10, 12))], vec![6..8, 12..13])
        );
    }

    #[test]
    fn adjacent_parts_are_one_run() {
        let mut values = [0.0; 10];
        let list = |visit: &mut Visit<'_>| {
            for place in [7..9, 2..5, 0..2, 5..6] {
                visit(StatePart { name: name("e", 0), values: &mut values[place.clone()], place });
            }
            visit(StatePart::whole(name("e", 1), &mut values));
        };
        assert_eq!(Holdings::of(list), holdings(&[(0, 0..6), (0, 7..9), (1, 0..10)]));
    }
}
