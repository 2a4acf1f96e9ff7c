//! The newest copy of which every shard survives; a new group goes back to it.

use kolo_reduction::state::Holdings;
use serde::{Deserialize, Serialize};

/// A rank's holdings of a copy: the copy's step, and the shards that the rank holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Number of steps after which the copy was made.
    pub steps: u64,
    /// Shards whose state it has.
    pub(crate) shards: Vec<usize>,
    /// Arrays that it has.
    pub arrays: Holdings,
}

/// Returns the newest step after which some rank holds each of `shards` shards.
pub fn newest(held: &[Vec<Held>], shards: usize) -> Option<u64> {
    let mut steps: Vec<u64> = held.iter().flatten().map(|held| held.steps).collect();
    steps.sort_unstable();
    steps.dedup();
    steps.into_iter().rev().find(|steps| {
        let copies = || held.iter().flatten().filter(|held| held.steps == *steps);
        (0..shards).all(|shard| copies().any(|held| held.shards.contains(&shard)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_copy_counts_of_which_every_shard_is_left() {
        let held =
            |steps, shards: &[usize]| Held { steps, shards: shards.to_vec(), arrays: Holdings::default() };
        let ranks =
            [vec![held(10, &[0, 1, 3]), held(20, &[0, 1])], vec![held(10, &[2, 1]), held(20, &[2, 1])]];
        assert_eq!(newest(&ranks, 3), Some(20));
        assert_eq!(newest(&ranks, 4), Some(10));
        assert_eq!(newest(&ranks, 5), None);
        assert_eq!(newest(&[Vec::new(), Vec::new()], 1), None);
    }
}
