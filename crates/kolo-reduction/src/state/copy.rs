//! Copies of state.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use super::part::{StateName, StatePart, Visit};
use super::redistribute::Holdings;

/// Arrays of state, each over all of flat memory. Elements that no part had are 0.
#[derive(Clone, Default)]
pub struct StateCopy {
    /// Number of elements of flat memory.
    len: usize,
    arrays: Vec<(StateName, Vec<f32>)>,
    /// Index of each array.
    places: HashMap<StateName, usize>,
}

impl fmt::Debug for StateCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.arrays.iter().map(|(name, _)| name).collect();
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
        self.places.get(name).map(|place| &self.arrays[*place].1[..])
    }

    /// Returns a run of an array, which is added if there is none of that name.
    pub fn run_mut(&mut self, name: &StateName, place: Range<usize>) -> &mut [f32] {
        let index = *self.places.entry(name.clone()).or_insert(self.arrays.len());
        if index == self.arrays.len() {
            self.arrays.push((name.clone(), vec![0.0; self.len]));
        }
        &mut self.arrays[index].1[place]
    }

    /// Copies the arrays of another copy into this one.
    pub fn extend(&mut self, other: &StateCopy) {
        for (name, array) in &other.arrays {
            self.run_mut(name, 0..array.len()).copy_from_slice(array);
        }
    }

    /// Returns what it has.
    pub fn holdings(&self) -> Holdings {
        Holdings(self.arrays.iter().map(|(name, array)| (name.clone(), 0..array.len())).collect())
    }

    /// Returns the arrays, to change them.
    pub fn arrays_mut(&mut self) -> impl Iterator<Item = (&StateName, &mut [f32])> {
        self.arrays.iter_mut().map(|(name, array)| (&*name, &mut array[..]))
    }

    /// Returns the arrays with their names.
    pub fn into_arrays(self) -> Vec<(StateName, Vec<f32>)> {
        self.arrays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateKind;

    #[test]
    fn a_copy_is_shown_by_its_names_and_not_by_its_values() {
        let name = StateName { kind: StateKind::Weights, name: String::new(), shard: None };
        let arrays = vec![(name, vec![0.125; 4])];
        let shown = format!("{:?}", StateCopy { len: 4, arrays, ..StateCopy::default() });
        assert!(shown.contains("Weights") && shown.contains("len: 4") && !shown.contains("0.125"), "{shown}");
    }
}
