//! Records: the pieces in which state is read and written.

use std::ops::Range;

use kolo_optim::{Layout, Scope};
use kolo_reduction::blocks;

/// Places of all records in a file. A record has the state of a block, or of a whole tensor where the rule
/// needs that: the block's elements of the first array, then those of the second.
#[derive(Debug)]
pub(crate) struct Records {
    /// End of each record's elements.
    ends: Vec<usize>,
    arrays: usize,
}

impl Records {
    pub(crate) fn new(layout: &Layout, scope: Scope, arrays: usize) -> Self {
        Records { ends: blocks(layout, scope).map(|block| block.end).collect(), arrays }
    }

    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the record of an element.
    pub(crate) fn of(&self, element: usize) -> usize {
        self.ends.partition_point(|end| *end <= element)
    }

    /// Returns the elements of a record.
    pub(crate) fn elements(&self, record: usize) -> Range<usize> {
        record.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[record]
    }

    /// Returns the number of values in a record.
    pub(crate) fn values(&self, record: usize) -> usize {
        self.elements(record).len() * self.arrays
    }

    /// Returns the place of an array's part of a record in the file, in bytes.
    pub(crate) fn place(&self, record: usize, array: usize) -> u64 {
        let elements = self.elements(record);
        ((elements.start * self.arrays + elements.len() * array) * size_of::<f32>()) as u64
    }

    /// Returns the length of the file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.ends.last().map_or(0, |end| *end) * self.arrays * size_of::<f32>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::{Kind, ParamSpec};
    use kolo_reduction::BLOCK;

    #[test]
    fn records_lie_one_behind_the_other() {
        let kind = Kind::Parameter { decay: true };
        let specs = [("a", BLOCK + 5), ("none", 0), ("b", 7)];
        let layout =
            Layout::new(specs.iter().map(|(name, len)| ParamSpec::new(*name, vec![*len], kind)).collect());
        for (scope, ranges) in [
            (Scope::Element, vec![0..BLOCK, BLOCK..BLOCK + 5, BLOCK + 5..BLOCK + 12]),
            (Scope::Tensor, vec![0..BLOCK + 5, BLOCK + 5..BLOCK + 12]),
        ] {
            let records = Records::new(&layout, scope, 3);
            assert_eq!((0..records.count()).map(|n| records.elements(n)).collect::<Vec<_>>(), ranges);
            let mut next = 0;
            for (number, range) in ranges.into_iter().enumerate() {
                assert_eq!((records.of(range.start), records.of(range.end - 1)), (number, number));
                for array in 0..3 {
                    assert_eq!(records.place(number, array), next);
                    next += 4 * range.len() as u64;
                }
                assert_eq!(records.values(number), 3 * range.len());
            }
            assert_eq!(records.bytes(), next);
        }
        let nothing = Records::new(&Layout::new(Vec::new()), Scope::Element, 2);
        assert_eq!((nothing.count(), nothing.bytes()), (0, 0));
    }
}
