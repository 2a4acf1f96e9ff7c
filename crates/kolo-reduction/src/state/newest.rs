//! The newest copy of which every shard survives; a new group goes back to it.

use super::part::StateKind;
use super::redistribute::Holdings;
use serde::{Deserialize, Serialize};

/// A rank's holdings of a copy: the copy's step, and the shards that the rank holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Number of steps after which the copy was made.
    pub steps: u64,
    /// Shards whose state it has.
    pub shards: Vec<usize>,
    /// Arrays that it has.
    pub arrays: Holdings,
}

/// Returns the newest step after which some rank holds each of `shards` shards, and some ranks together all
/// `len` elements of the model and of its optimizer.
pub fn newest(held: &[Vec<Held>], shards: usize, len: usize) -> Option<u64> {
    let mut steps: Vec<u64> = held.iter().flatten().map(|held| held.steps).collect();
    steps.sort_unstable();
    steps.dedup();
    steps.into_iter().rev().find(|steps| {
        let copies = || held.iter().flatten().filter(|held| held.steps == *steps);
        let of_job = |held: &Held| {
            held.arrays.filtered(|name| name.shard.is_none() && name.kind != StateKind::Reduction)
        };
        let of_job = Holdings::union(&copies().map(of_job).collect::<Vec<_>>());
        (0..shards).all(|shard| copies().any(|held| held.shards.contains(&shard)))
            && of_job.0.iter().all(|(_, run)| *run == (0..len))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateName;

    #[test]
    fn the_newest_copy_counts_of_which_every_shard_is_left() {
        let held =
            |steps, shards: &[usize]| Held { steps, shards: shards.to_vec(), arrays: Holdings::default() };
        let ranks =
            [vec![held(10, &[0, 1, 3]), held(20, &[0, 1])], vec![held(10, &[2, 1]), held(20, &[2, 1])]];
        assert_eq!(newest(&ranks, 3, 0), Some(20));
        assert_eq!(newest(&ranks, 4, 0), Some(10));
        assert_eq!(newest(&ranks, 5, 0), None);
        assert_eq!(newest(&[Vec::new(), Vec::new()], 1, 0), None);
    }

    #[test]
    fn a_copy_counts_if_the_owners_of_all_parts_are_left() {
        let moment = StateName::of_job(StateKind::Optimizer, "m");
        let held = |steps, runs: &[(usize, usize)]| {
            let arrays = Holdings(runs.iter().map(|(from, to)| (moment.clone(), *from..*to)).collect());
            Held { steps, shards: vec![0], arrays }
        };
        let first = vec![held(10, &[(0, 4), (8, 10)]), held(20, &[(0, 4)])];
        let second = vec![held(10, &[(0, 8)]), held(20, &[(4, 8)])];
        assert_eq!(newest(&[first.clone(), second.clone()], 1, 8), Some(20));
        assert_eq!(newest(&[first.clone(), second], 1, 10), Some(10));
        assert_eq!(newest(&[first], 1, 10), None);
    }
}
