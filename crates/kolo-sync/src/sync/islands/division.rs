//! Division of shards into islands, and the ranks that hold them.

use std::ops::Range;

/// An island of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Island {
    /// Shards of the island, among those of the job.
    pub(crate) shards: Range<usize>,
    /// Ranks that hold its shards; the first of them has at least one.
    pub(crate) ranks: Range<usize>,
    /// Number of its shards that each of these ranks holds.
    pub(crate) counts: Vec<usize>,
}

impl Island {
    /// Returns the rank that represents the island: the first one that holds a shard of it.
    pub(crate) fn first_holder(&self) -> usize {
        let offset = self.counts.iter().position(|count| *count > 0).unwrap_or(0);
        self.ranks.start + offset
    }
}

/// Divides shards into islands of equal size. `shares` is the number of shards of each rank. A single
/// island, which is the whole job, has all ranks.
pub fn divide(shares: &[usize], islands: usize) -> Vec<Island> {
    let shards: usize = shares.iter().sum();
    let size = shards / islands;
    let add = |end: &mut usize, share: &usize| {
        *end += share;
        Some(*end)
    };
    let ends: Vec<usize> = shares.iter().scan(0, add).collect();
    let island = |number: usize| {
        let own = number * size..(number + 1) * size;
        let held = |rank: &usize| {
            let rank = ends[*rank] - shares[*rank]..ends[*rank];
            rank.end.min(own.end).saturating_sub(rank.start.max(own.start))
        };
        let holders: Vec<usize> = (0..shares.len()).filter(|rank| held(rank) > 0).collect();
        let ranks = match (islands, holders.first(), holders.last()) {
            (1, ..) => 0..shares.len(),
            (_, Some(first), Some(last)) => *first..last + 1,
            _ => 0..0,
        };
        Island { counts: ranks.clone().map(|rank| held(&rank)).collect(), shards: own.clone(), ranks }
    };
    (0..islands).map(island).collect()
}

/// Returns the islands that span several ranks but not all of them, in two sets: within a set, a rank has at
/// most one island.
pub(crate) fn spanning(islands: &[Island], world: usize) -> [Vec<usize>; 2] {
    let spans = |number: &usize| (2..world).contains(&islands[*number].ranks.len());
    let spanning: Vec<usize> = (0..islands.len()).filter(spans).collect();
    [0, 1].map(|parity| spanning.iter().copied().skip(parity).step_by(2).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_sampler::equal;

    #[test]
    fn every_shard_is_in_one_island_on_the_rank_that_holds_it() {
        for world in 1..=9 {
            for (shards, islands) in [(1, 1), (4, 1), (4, 2), (4, 4), (6, 2), (6, 3), (12, 4), (30, 5)] {
                let shares = equal(shards, world);
                let divided = divide(&shares, islands);
                let mut held = vec![0; world];
                for (number, island) in divided.iter().enumerate() {
                    assert_eq!(island.shards, number * shards / islands..(number + 1) * shards / islands);
                    assert_eq!(island.counts.iter().sum::<usize>(), shards / islands);
                    island.ranks.clone().zip(&island.counts).for_each(|(rank, count)| held[rank] += count);
                }
                assert_eq!(held, shares, "{world} ranks, {shards} shards, {islands} islands");
                for set in spanning(&divided, world) {
                    for rank in 0..world {
                        let of = set.iter().filter(|number| divided[**number].ranks.contains(&rank));
                        assert!(of.count() <= 1, "rank {rank} of {world}: {divided:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_rank_without_shards_is_in_no_island_but_that_of_all() {
        let divided = divide(&[2, 0, 3, 1, 0], 3);
        let ranks: Vec<_> = divided.iter().map(|island| island.ranks.clone()).collect();
        assert_eq!(ranks, [0..1, 2..3, 2..4]);
        assert_eq!(divided[2].counts, [1, 1]);
        assert_eq!(divide(&[2, 0, 3, 1, 0], 1)[0].ranks, 0..5);
    }
}
