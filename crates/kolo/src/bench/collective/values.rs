//! Numbers that the ranks contribute to a measured collective, and the results that it must have.
//!
//! The numbers depend on rank and index, so that no result equals what its rank had before, a contribution
//! that is missing or counted twice shows, and a chunk of another rank or place does. They are exact in every
//! type, in any order of additions: sums of up to 64 ranks stay below 256, which `bf16` and `u8` can hold.

use std::ops::Range;

use kolo_comm::Op;
use kolo_comm::hash::splitmix64;
use kolo_comm::schedule::OperationKind;

/// The operation that is verified.
pub(super) struct Values {
    pub(super) operation: OperationKind,
    pub(super) op: Op,
    pub(super) root: usize,
    pub(super) world: usize,
    /// Ranks that contribute and are verified: all but servers, which are the last ranks of each launcher.
    pub(super) workers: Vec<usize>,
    /// Elements of the larger one of input and output.
    pub(super) len: usize,
}

impl Values {
    /// Returns the first element that a rank sends. All-to-all and messages send from the half of the buffer
    /// behind the received elements.
    pub(super) fn first_sent(&self) -> usize {
        match self.operation {
            OperationKind::AllToAll | OperationKind::Exchange => self.len,
            _ => 0,
        }
    }

    /// Returns the number that a rank contributes at an index of what it sends.
    pub(super) fn sent(&self, rank: usize, index: usize) -> usize {
        let drawn = splitmix64((rank as u64) << 40 ^ index as u64) as usize;
        let workers = self.workers.len();
        match self.op {
            _ if !self.operation.properties().adds => drawn % 251,
            Op::Max | Op::Min => drawn % 251,
            // About one factor of 2.
            Op::Product => 1 + usize::from(drawn.is_multiple_of(workers)),
            // The last worker's number makes the sum divisible, and is larger than the average.
            Op::Average if self.workers.last() == Some(&rank) => {
                let others = &self.workers[..workers - 1];
                let sum: usize = others.iter().map(|rank| self.sent(*rank, index)).sum();
                2 * workers - sum % workers
            }
            Op::Sum | Op::Average => 1 + drawn % 2,
        }
    }

    /// Returns the elements of a rank's buffer that have a specified result.
    pub(super) fn specified(&self, rank: usize) -> Range<usize> {
        let each = self.len / self.world;
        match self.operation {
            OperationKind::AllReduce if !self.workers.contains(&rank) => 0..0,
            OperationKind::Reduce | OperationKind::Gather if rank != self.root => 0..0,
            OperationKind::Scatter if rank == self.root => 0..0,
            OperationKind::Exchange if self.world == 1 => 0..0,
            OperationKind::ReduceScatter => rank * each..(rank + 1) * each,
            OperationKind::ReduceToReaders => rank.saturating_sub(1) * each..(rank + 1) * each,
            OperationKind::Scatter => 0..each,
            _ => 0..self.len,
        }
    }

    /// Returns the result at a specified index of a rank's buffer.
    pub(super) fn expected(&self, rank: usize, index: usize) -> usize {
        let each = (self.len / self.world).max(1);
        let (chunk, within) = (index / each, index % each);
        match self.operation {
            OperationKind::AllReduce
            | OperationKind::ReduceScatter
            | OperationKind::ReduceToReaders
            | OperationKind::Reduce => self.combined(index),
            OperationKind::Broadcast => self.sent(self.root, index),
            OperationKind::AllGather => self.sent(chunk, index),
            OperationKind::Gather if chunk == self.root => self.sent(chunk, index),
            OperationKind::Gather => self.sent(chunk, within),
            OperationKind::Scatter => self.sent(self.root, rank * each + index),
            OperationKind::AllToAll => self.sent(chunk, rank * each + within),
            OperationKind::Exchange => self.sent((rank + self.world - 1) % self.world, index),
        }
    }

    fn combined(&self, index: usize) -> usize {
        let numbers = self.workers.iter().map(|rank| self.sent(*rank, index));
        match self.op {
            Op::Sum => numbers.sum(),
            Op::Average => numbers.sum::<usize>() / self.workers.len(),
            Op::Max => numbers.max().unwrap_or(0),
            Op::Min => numbers.min().unwrap_or(0),
            Op::Product => numbers.product(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// All operations, by each operator if they combine.
    fn all(world: usize, each: usize) -> impl Iterator<Item = Values> {
        let ops = |operation: &OperationKind| if operation.properties().adds { 5 } else { 1 };
        OperationKind::ALL.iter().flat_map(move |operation| {
            Op::ALL.into_iter().take(ops(operation)).map(move |op| Values {
                operation: *operation,
                op,
                root: world - 1,
                world,
                workers: (0..world).collect(),
                len: each * world,
            })
        })
    }

    /// Elements of a rank's buffer that differ from the results if the buffer stays as it was written.
    fn wrong(values: &Values, rank: usize) -> usize {
        let (first, specified) = (values.first_sent(), values.specified(rank));
        let written = |index: usize| if index < first { 0 } else { values.sent(rank, index - first) };
        specified.filter(|index| written(*index) != values.expected(rank, *index)).count()
    }

    #[test]
    fn a_collective_that_does_nothing_is_noticed() {
        for world in 2..=9 {
            for values in all(world, 64) {
                let ranks = (0..world).filter(|rank| wrong(&values, *rank) > 0).count();
                let name = format!("{} by {} of {world}", values.operation.name(), values.op);
                let verified = (0..world).filter(|rank| !values.specified(*rank).is_empty());
                // The root has what a broadcast gives.
                let unchanged = usize::from(values.operation == OperationKind::Broadcast);
                assert_eq!(ranks, verified.count() - unchanged, "{name}");
            }
        }
    }

    #[test]
    fn data_of_another_rank_or_place_is_noticed() {
        for values in all(8, 64).filter(|values| !values.operation.properties().adds) {
            let part = |rank: usize, chunk: usize| -> Vec<usize> {
                (64 * chunk..64 * (chunk + 1)).map(|index| values.sent(rank, index)).collect()
            };
            let parts: HashSet<_> = (0..64).map(|number| part(number / 8, number % 8)).collect();
            assert_eq!(parts.len(), 64, "{}", values.operation.name());
        }
    }

    #[test]
    fn every_result_is_exact_in_every_type() {
        for world in [1, 2, 3, 7, 64] {
            for values in all(world, 8).filter(|values| values.operation == OperationKind::AllReduce) {
                for index in 0..values.len {
                    let numbers = (0..world).map(|rank| values.sent(rank, index));
                    let sum: usize = numbers.sum();
                    let fits = match values.op {
                        Op::Sum => sum <= 255,
                        Op::Average => sum <= 255 && sum.is_multiple_of(world),
                        Op::Max | Op::Min | Op::Product => values.expected(0, index) <= 255,
                    };
                    assert!(fits, "{} of {world} at {index}", values.op);
                }
            }
        }
    }
}
