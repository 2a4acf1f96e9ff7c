//! Copies of state.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::part::{StateName, StatePart, Visit};
use super::redistribute::Holdings;

/// Copy of the runs that a rank has of each array. The memory of an array is that of all its elements, but
/// the operating system provides only the pages of runs that have been written.
#[derive(Clone, Default)]
pub struct StateCopy {
    /// Number of elements of flat memory.
    len: usize,
    arrays: Vec<Array>,
    /// Index of each array.
    places: HashMap<StateName, usize>,
}

#[derive(Clone)]
struct Array {
    name: StateName,
    /// Elements that no run has are 0. Copies of the copy share them until one changes them.
    values: Arc<Vec<f32>>,
    /// Runs that it has, as they came.
    runs: Vec<Range<usize>>,
}

impl fmt::Debug for StateCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.arrays.iter().map(|array| &array.name).collect();
        f.debug_struct("StateCopy").field("len", &self.len).field("arrays", &names).finish_non_exhaustive()
    }
}

impl StateCopy {
    /// Creates a copy without arrays, for flat memory of `len` elements.
    pub fn new(len: usize) -> Self {
        StateCopy { len, ..StateCopy::default() }
    }

    /// Copies the state that `list` visits, of flat memory of `len` elements. The arrays are in its order.
    pub fn of(len: usize, list: impl FnOnce(&mut Visit<'_>)) -> Self {
        let mut copy = StateCopy::new(len);
        list(&mut |StatePart { name, place, values }| copy.run_mut(&name, place).copy_from_slice(values));
        copy
    }

    /// Copies the values of its arrays into the state that `list` visits; other arrays there stay as they
    /// are.
    pub fn fill(&self, list: impl FnOnce(&mut Visit<'_>)) {
        list(&mut |StatePart { name, place, values }| {
            if let Some(array) = self.array(&name) {
                values.copy_from_slice(&array[place]);
            }
        });
    }

    /// Returns an array, if there is one of that name.
    pub fn array(&self, name: &StateName) -> Option<&[f32]> {
        self.places.get(name).map(|place| &self.arrays[*place].values[..])
    }

    /// Returns a run of an array, which is added if there is none of that name. The copy has the run from
    /// then on.
    pub fn run_mut(&mut self, name: &StateName, place: Range<usize>) -> &mut [f32] {
        let index = *self.places.entry(name.clone()).or_insert(self.arrays.len());
        if index == self.arrays.len() {
            self.arrays.push(Array {
                name: name.clone(),
                values: vec![0.0; self.len].into(),
                runs: Vec::new(),
            });
        }
        let Array { values, runs, .. } = &mut self.arrays[index];
        match runs.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            Some(last) if *last == place => {}
            _ => runs.push(place.clone()),
        }
        &mut Arc::make_mut(values)[place]
    }

    /// Copies the runs of another copy into this one.
    pub fn extend(&mut self, other: &StateCopy) {
        for Array { name, values, runs } in &other.arrays {
            for run in runs {
                self.run_mut(name, run.clone()).copy_from_slice(&values[run.clone()]);
            }
        }
    }

    /// Returns a copy, which shares the values, with the arrays in the order of another one; those that it
    /// lacks come last.
    pub fn in_order_of(&self, other: &StateCopy) -> Self {
        let mut copy = self.clone();
        copy.arrays.sort_by_key(|array| other.places.get(&array.name).copied().unwrap_or(usize::MAX));
        copy.retain(|_| true);
        copy
    }

    /// Keeps only the arrays with such names.
    pub fn retain(&mut self, wanted: impl Fn(&StateName) -> bool) {
        self.arrays.retain(|array| wanted(&array.name));
        let indices = self.arrays.iter().enumerate().map(|(index, array)| (array.name.clone(), index));
        self.places = indices.collect();
    }

    /// Returns what it has.
    pub fn holdings(&self) -> Holdings {
        let runs = |array: &Array| array.runs.iter().map(|run| (array.name.clone(), run.clone())).collect();
        Holdings::union(&self.arrays.iter().map(|array| Holdings(runs(array))).collect::<Vec<_>>())
    }

    /// Returns the arrays, to change them.
    pub fn arrays_mut(&mut self) -> impl Iterator<Item = (&StateName, &mut [f32])> {
        self.arrays.iter_mut().map(|array| (&array.name, &mut Arc::make_mut(&mut array.values)[..]))
    }

    /// Returns the arrays with their names.
    pub fn into_arrays(self) -> Vec<(StateName, Arc<Vec<f32>>)> {
        self.arrays.into_iter().map(|Array { name, values, .. }| (name, values)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateKind;

    #[test]
    fn a_copy_has_the_runs_that_were_written() {
        let [weights, moment] = [("", StateKind::Weights), ("m", StateKind::Optimizer)]
            .map(|(name, kind)| StateName::of_job(kind, name));
        let mut copy = StateCopy::new(10);
        for (name, place, value) in
            [(&weights, 0..10, 1.0), (&moment, 2..4, 2.0), (&moment, 8..10, 3.0), (&moment, 4..6, 4.0)]
        {
            copy.run_mut(name, place).fill(value);
        }
        let runs = |copy: &StateCopy| copy.holdings().filtered(|name| *name == moment).0;
        assert_eq!(runs(&copy), [(moment.clone(), 2..6), (moment.clone(), 8..10)]);
        // Runs that the other copy lacks stay.
        let mut other = StateCopy::new(10);
        other.run_mut(&moment, 0..3).fill(5.0);
        other.extend(&copy);
        assert_eq!(other.array(&moment).unwrap(), [5.0, 5.0, 2.0, 2.0, 4.0, 4.0, 0.0, 0.0, 3.0, 3.0]);
        assert_eq!(runs(&other), [(moment.clone(), 0..6), (moment.clone(), 8..10)]);
        other.retain(|name| name.kind == StateKind::Optimizer);
        assert!(other.array(&weights).is_none() && other.array(&moment).is_some());
        assert_eq!(StateCopy::new(3).holdings().0, []);
    }

    #[test]
    fn a_copy_is_shown_by_its_names_and_not_by_its_values() {
        let mut copy = StateCopy::new(4);
        copy.run_mut(&StateName::of_job(StateKind::Weights, ""), 0..4).fill(0.125);
        let shown = format!("{copy:?}");
        assert!(shown.contains("Weights") && shown.contains("len: 4") && !shown.contains("0.125"), "{shown}");
    }
}
