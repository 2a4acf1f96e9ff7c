//! The newest copy of which every shard survives; a new group goes back to it.

use kolo_comm::Rank;
use serde::{Deserialize, Serialize};

/// A rank's holdings of a copy: the copy's step, and the shards that the rank holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Number of steps after which the copy was made.
    pub steps: u64,
    /// Shards whose state it has.
    pub(crate) shards: Vec<usize>,
}

/// Returns the newest step after which a rank holds each of `shards` shards, and one such rank for each
/// shard.
pub fn newest(held: &[Vec<Held>], shards: usize) -> Option<(u64, Vec<Rank>)> {
    let mut steps: Vec<u64> = held.iter().flatten().map(|held| held.steps).collect();
    steps.sort_unstable();
    steps.dedup();
    steps.into_iter().rev().find_map(|steps| {
        let holds = |rank: &&[Held], shard| {
            rank.iter().any(|held| held.steps == steps && held.shards.contains(&shard))
        };
        let holder = |shard| held.iter().position(|rank| holds(&&rank[..], shard)).map(Rank);
        (0..shards).map(holder).collect::<Option<Vec<Rank>>>().map(|holders| (steps, holders))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_copy_counts_of_which_every_shard_is_left() {
        let held = |steps, shards: &[usize]| Held { steps, shards: shards.to_vec() };
        let ranks =
            [vec![held(10, &[0, 1, 3]), held(20, &[0, 1])], vec![held(10, &[2, 1]), held(20, &[2, 1])]];
        assert_eq!(newest(&ranks, 3), Some((20, vec![Rank(0), Rank(0), Rank(1)])));
        assert_eq!(newest(&ranks, 4), Some((10, vec![Rank(0), Rank(0), Rank(1), Rank(0)])));
        assert_eq!(newest(&ranks, 5), None);
        assert_eq!(newest(&[Vec::new(), Vec::new()], 1), None);
    }
}
