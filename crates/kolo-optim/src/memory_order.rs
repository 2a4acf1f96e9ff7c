//! Order of a tensor's elements in memory.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Permutation of a tensor's axes. If a library's layers read a tensor in another order than row-major, its
/// elements lie in that order in flat memory too, which saves a copy. Files and hashes are always row-major.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryOrder {
    /// Axes, outermost first; empty for row-major.
    axes: Vec<usize>,
}

impl MemoryOrder {
    /// Returns the order in which the last axis is innermost.
    pub fn row_major() -> Self {
        Self::default()
    }

    /// Returns the order in which axis `i` of a tensor of this shape has the stride `strides[i]`; row-major
    /// if the strides are not those of a permutation.
    pub fn of_strides(shape: &[usize], strides: &[usize]) -> Self {
        let mut long: Vec<usize> = (0..shape.len()).filter(|axis| shape[*axis] != 1).collect();
        if long.iter().any(|axis| shape[*axis] == 0) {
            return Self::row_major();
        }
        long.sort_by_key(|axis| std::cmp::Reverse(strides[*axis]));
        let mut expected = 1;
        for axis in long.iter().rev() {
            if strides[*axis] != expected {
                return Self::row_major();
            }
            expected *= shape[*axis];
        }
        if long.is_sorted() {
            return Self::row_major();
        }
        // The position of an axis of one element is arbitrary. Such axes go first, so that equal orders
        // compare equal.
        let short = (0..shape.len()).filter(|axis| shape[*axis] == 1);
        MemoryOrder { axes: short.chain(long.iter().copied()).collect() }
    }

    /// Returns true if the last axis is innermost.
    pub fn is_row_major(&self) -> bool {
        self.axes.is_empty()
    }

    /// Returns the axes of a tensor of `rank` dimensions, outermost first.
    pub fn axes(&self, rank: usize) -> Vec<usize> {
        if self.is_row_major() { (0..rank).collect() } else { self.axes.clone() }
    }

    /// Returns the position of each axis in [`axes`](Self::axes): the permutation from the shape in memory
    /// back to the tensor's own shape.
    pub fn inverse_axes(&self, rank: usize) -> Vec<usize> {
        let mut inverse = vec![0; rank];
        self.axes(rank).into_iter().enumerate().for_each(|(place, axis)| inverse[axis] = place);
        inverse
    }

    /// Returns, for each place in memory, the row-major index of the element there.
    pub fn row_major_indices(&self, shape: &[usize]) -> impl Iterator<Item = usize> {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis];
        }
        let axes = self.axes(shape.len());
        let steps: Vec<(usize, usize)> = axes.iter().map(|axis| (shape[*axis], strides[*axis])).collect();
        (0..shape.iter().product()).map(move |mut place: usize| {
            let mut index = 0;
            for (size, stride) in steps.iter().rev() {
                index += place % size * stride;
                place /= size;
            }
            index
        })
    }

    /// Returns `values`, which lie in this order, in row-major order.
    pub fn to_row_major<'a>(&self, shape: &[usize], values: &'a [f32]) -> Cow<'a, [f32]> {
        if self.is_row_major() {
            return Cow::Borrowed(values);
        }
        let mut sorted = vec![0.0; values.len()];
        self.row_major_indices(shape).zip(values).for_each(|(index, value)| sorted[index] = *value);
        Cow::Owned(sorted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_determine_the_order() {
        let order = |shape: &[usize], strides: &[usize]| MemoryOrder::of_strides(shape, strides).axes;
        let row_major: [usize; 0] = [];
        assert_eq!(order(&[4, 3, 2], &[6, 2, 1]), row_major);
        assert_eq!(order(&[4, 3, 2], &[1, 8, 4]), [1, 2, 0]);
        // The stride of an axis of one element does not matter.
        assert_eq!(order(&[4, 1, 2], &[2, 77, 1]), row_major);
        assert_eq!(order(&[4, 1, 2], &[1, 0, 4]), [1, 2, 0]);
        // Strides of broadcast, padded and empty tensors are not a permutation.
        assert_eq!(order(&[4, 3], &[0, 1]), row_major);
        assert_eq!(order(&[4, 3], &[1, 5]), row_major);
        assert_eq!(order(&[4, 0], &[1, 4]), row_major);
        assert_eq!(order(&[], &[]), row_major);
    }

    #[test]
    fn values_are_restored_to_row_major_order() {
        let order = MemoryOrder::of_strides(&[2, 3, 2], &[1, 4, 2]);
        let indices: Vec<usize> = order.row_major_indices(&[2, 3, 2]).collect();
        assert_eq!(indices, [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]);
        let values: Vec<f32> = indices.iter().map(|index| *index as f32).collect();
        let sorted: Vec<f32> = (0..12).map(|index| index as f32).collect();
        assert_eq!(*order.to_row_major(&[2, 3, 2], &values), sorted);
        assert!(MemoryOrder::row_major().row_major_indices(&[2, 3]).eq(0..6));
    }
}
