//! First values of a model: whole, or handed over tensor by tensor and divided at once.
//!
//! In stage 3 no rank ever has all values: each tensor is made, compared with that
//! of the other ranks, and dropped but for this rank's part. If some rank has made another one, all take that
//! of rank 0, as they do with whole values.

use std::ops::Range;
use std::sync::Arc;

use kolo_comm::hash::fnv1a;
use kolo_comm::{Group, Rank};
use kolo_optim::{Layout, ParamSpec, Scope};
use kolo_reduction::Error;
use kolo_values::FlatValues;
use kolo_values::division::{held_runs, is_divided};
use kolo_values::fingerprints::{all, print};

use super::state_share::StateShare;
use crate::config::Config;

/// First values of a model.
#[derive(Debug)]
pub enum FirstValues {
    /// All values.
    Whole(Arc<Vec<f32>>),
    /// This rank's parts, and the fingerprint of all values, which are the same on all ranks.
    Parts(FlatValues, u64),
}

impl From<Arc<Vec<f32>>> for FirstValues {
    fn from(values: Arc<Vec<f32>>) -> Self {
        FirstValues::Whole(values)
    }
}

impl FirstValues {
    /// Number of values of the model.
    pub(crate) fn len(&self) -> usize {
        match self {
            FirstValues::Whole(values) => values.len(),
            FirstValues::Parts(values, _) => values.len(),
        }
    }
}

/// Takes the first values of a model, tensor by tensor.
pub trait TakeValues {
    /// Says which tensors follow, in the model's order: names, kinds and numbers of elements. The order of
    /// axes may still be another one.
    fn begin(&mut self, specs: &[ParamSpec]);

    /// Takes the values of the next tensor, in its memory order.
    fn take(&mut self, values: &[f32]);
}

/// Collects all values.
impl TakeValues for Vec<f32> {
    fn begin(&mut self, specs: &[ParamSpec]) {
        self.reserve_exact(Layout::new(specs.to_vec()).len());
    }

    fn take(&mut self, values: &[f32]) {
        self.extend_from_slice(values);
    }
}

/// Division of first values among the ranks of a group, all of which take the same tensors.
#[derive(Debug)]
pub struct FirstParts {
    group: Arc<Group>,
    scope: Scope,
    redundancy: usize,
    layout: Layout,
    /// Runs of flat memory that this rank keeps.
    held: Vec<Range<usize>>,
    values: FlatValues,
    /// Fingerprints of the tensors so far.
    prints: Vec<u64>,
    /// True if all ranks take the same tensors. Otherwise their models differ, which they find when they
    /// meet.
    are_alike: bool,
    failure: Option<Error>,
}

impl FirstParts {
    /// Prepares the division among the ranks of `group`, for an optimizer of this scope.
    pub fn new(group: &Arc<Group>, config: &Config, scope: Scope) -> Self {
        let (group, redundancy, layout) = (group.clone(), config.redundancy, Layout::new(Vec::new()));
        let values = FlatValues::Shared(Vec::new().into());
        let (held, prints) = (Vec::new(), Vec::new());
        FirstParts { group, scope, redundancy, layout, held, values, prints, are_alike: false, failure: None }
    }

    /// Returns this rank's parts. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or there are no addresses for the values.
    pub fn end(mut self) -> Result<FirstValues, Error> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.are_alike {
            self.agree_on_common()?;
        }
        Ok(FirstValues::Parts(self.values, all(self.prints)))
    }

    fn divide(&mut self, specs: &[ParamSpec]) -> Result<(), Error> {
        let (group, layout) = (self.group.clone(), Layout::new(specs.to_vec()));
        let line = |spec: &ParamSpec| format!("{} {:?} {:?}\n", spec.name, spec.shape, spec.kind);
        let print = fnv1a(specs.iter().map(line).collect::<String>().as_bytes());
        self.are_alike = self.of_all(print)?.iter().all(|other| *other == print);
        let (rank, ranks) = (group.rank(), (0..group.world_size()).map(Rank).collect::<Vec<_>>());
        let share = StateShare::new(group, &layout, self.scope, &ranks, self.redundancy);
        self.held = held_runs(&layout, share.owners(), rank);
        self.values = FlatValues::parts(layout.len())?;
        self.layout = layout;
        Ok(())
    }

    fn keep_next(&mut self, values: &[f32]) -> Result<(), Error> {
        let span = &self.layout.spans()[self.prints.len()];
        let (place, is_divided) = (span.range(), is_divided(span));
        assert_eq!(values.len(), place.len(), "as many values as tensor {:?} has", span.spec.name);
        let mut of_first = Vec::new();
        let mut print = print(values);
        if is_divided && self.are_alike {
            let prints = self.of_all(print)?;
            if prints.iter().any(|other| *other != print) {
                of_first.extend_from_slice(values);
                self.group.broadcast(&mut of_first, Rank(0))?;
                print = prints[0];
            }
        }
        self.prints.push(print);
        let values = if of_first.is_empty() { values } else { &of_first };
        let first = self.held.partition_point(|run| run.end <= place.start);
        for run in self.held[first..].iter().take_while(|run| run.start < place.end) {
            let run = run.start.max(place.start)..run.end.min(place.end);
            let from = run.start - place.start..run.end - place.start;
            self.values[run].copy_from_slice(&values[from]);
        }
        Ok(())
    }

    /// Compares the tensors of which all ranks have all values.
    fn agree_on_common(&mut self) -> Result<(), Error> {
        let all: Vec<Vec<u64>> = self.group.all_gather_value(&self.prints)?;
        for (number, span) in self.layout.spans().iter().enumerate() {
            let differs = |prints: &Vec<u64>| prints.get(number) != all[0].get(number);
            if !is_divided(span) && all.iter().any(differs) {
                self.group.broadcast(&mut self.values[span.range()], Rank(0))?;
                self.prints[number] = all[0][number];
            }
        }
        Ok(())
    }

    /// Returns the number that each rank gives.
    fn of_all(&self, own: u64) -> Result<Vec<u64>, Error> {
        let mut all = vec![0i64; self.group.world_size()];
        self.group.all_gather(&[own as i64], &mut all)?;
        Ok(all.into_iter().map(|print| print as u64).collect())
    }
}

impl TakeValues for FirstParts {
    fn begin(&mut self, specs: &[ParamSpec]) {
        self.failure = self.divide(specs).err();
    }

    fn take(&mut self, values: &[f32]) {
        if self.failure.is_none() {
            self.failure = self.keep_next(values).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharding::Sharding;
    use kolo_comm::threads;
    use kolo_optim::Kind;
    use kolo_reduction::BLOCK;

    /// Tensors of which some are divided, with values that depend on the rank in some of them.
    fn tensors(rank: usize) -> (Vec<ParamSpec>, Vec<Vec<f32>>) {
        let kind = Kind::Parameter { decay: true };
        let lens = [
            (5, kind),
            (3 * BLOCK + 7, kind),
            (2 * BLOCK, Kind::Frozen),
            (0, kind),
            (BLOCK, kind),
            (9, kind),
        ];
        let spec = |(number, (len, kind)): (usize, &(usize, Kind))| {
            ParamSpec::new(format!("t{number}"), vec![*len], *kind)
        };
        let specs = lens.iter().enumerate().map(spec).collect();
        let differs = |number: usize| if [1, 2, 5].contains(&number) { rank as f32 } else { 0.0 };
        let of = |number: usize, len: usize| (0..len).map(|i| i as f32 + differs(number) + 0.5).collect();
        let values = lens.iter().enumerate().map(|(number, (len, _))| of(number, *len)).collect();
        (specs, values)
    }

    #[test]
    fn every_rank_keeps_its_parts_of_rank_0s_values() {
        for world in 2..=4 {
            let kept = threads::spawn(world, |group| {
                let (group, config) =
                    (Arc::new(group), Config { sharding: Sharding::Parameters, ..Config::default() });
                let (specs, values) = tensors(group.rank().0);
                let mut parts = FirstParts::new(&group, &config, Scope::Element);
                parts.begin(&specs);
                values.iter().for_each(|values| parts.take(values));
                let held = parts.held.clone();
                let FirstValues::Parts(values, print) = parts.end().unwrap() else { panic!("parts") };
                (held, values.to_vec(), print)
            });
            let (_, expected) = tensors(0);
            let print = all(expected.iter().map(|values| print(values)));
            let expected = expected.concat();
            let mut covered = vec![false; expected.len()];
            for (held, values, of_rank) in kept.unwrap() {
                assert_eq!(of_rank, print);
                let mut wanted = vec![0.0; expected.len()];
                for run in held {
                    wanted[run.clone()].copy_from_slice(&expected[run.clone()]);
                    covered[run].fill(true);
                }
                assert_eq!(values, wanted, "{world}");
            }
            assert!(covered.into_iter().all(|element| element));
        }
    }

    #[test]
    fn other_tensors_are_no_deadlock() {
        let ended = threads::spawn(2, |group| {
            let rank = group.rank().0;
            let (specs, values) = tensors(0);
            let group = Arc::new(group);
            let mut parts = FirstParts::new(&group, &Config::default(), Scope::Element);
            parts.begin(&specs[..6 - rank]);
            values[..6 - rank].iter().for_each(|values| parts.take(values));
            parts.end().is_ok()
        });
        assert_eq!(ended.unwrap(), [true, true], "they differ, which is found when they meet");
    }
}
