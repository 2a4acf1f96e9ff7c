//! Copies of each worker's private state, which it sends to the next workers in the ring.

use std::collections::BTreeMap;

use kolo_comm::Rank;

use crate::replica::core::Core;
use kolo_reduction::Error;

/// Number of further ranks that hold a worker's private state. It is two, because a rank's death is seldom
/// noticed before its neighbor's where both have one cause, and a lost copy is replaced only when the next
/// group has begun.
const HOLDERS: usize = 2;

/// Returns the pairs of sender and receiver: each of `workers` with the keeper that follows it in the ring
/// after skipping `past` keepers, if there is one.
fn pairs(workers: &[Rank], keepers: &[Rank], past: usize) -> Vec<(Rank, Rank)> {
    let pair = |(place, worker): (usize, &Rank)| {
        let others = workers[place + 1..].iter().chain(&workers[..place]);
        let keeper = others.filter(|other| keepers.contains(other)).nth(past)?;
        Some((*worker, *keeper))
    };
    workers.iter().enumerate().filter_map(pair).collect()
}

impl Core {
    /// Returns the state of this rank's shards, `shard_len` values each, and if this rank is one of
    /// `keepers`, that of the workers before it. Each worker sends its own to the next keepers. A
    /// collective.
    pub fn with_those_before(
        &self,
        own: Vec<Vec<f32>>,
        shard_len: usize,
        keepers: &[Rank],
    ) -> Result<BTreeMap<usize, Vec<f32>>, Error> {
        let (workers, rank, group) = (self.workers(), self.ranks.group.rank(), &self.ranks.group);
        let shards_of = |Rank(worker): Rank| {
            let first: usize = self.step.shares()[..worker].iter().sum();
            first..first + self.step.shares()[worker]
        };
        let mut shards: BTreeMap<usize, Vec<f32>> = self.step.shards().zip(own.iter().cloned()).collect();
        let mut keep = |worker: Rank, received: &[f32]| {
            shards.extend(shards_of(worker).zip(received.chunks(shard_len).map(<[f32]>::to_vec)));
        };
        let space = |worker: Rank| vec![0.0; shards_of(worker).len() * shard_len];
        let own = own.concat();
        for past in 0..HOLDERS {
            let pairs = pairs(&workers, keepers, past);
            let to = pairs.iter().find(|(from, _)| *from == rank).map(|(_, to)| *to);
            let from = pairs.iter().find(|(_, to)| *to == rank).map(|(from, _)| *from);
            if keepers == workers
                && let (Some(to), Some(from)) = (to, from)
            {
                // All pairs exchange at once.
                let mut received = space(from);
                group.send_receive(&own, to, &mut received, from)?;
                keep(from, &received);
                continue;
            }
            // The pairs send one after another, in the same order on all ranks.
            for (from, to) in pairs {
                if from == rank {
                    group.send(&own, to)?;
                } else if to == rank {
                    let mut received = space(from);
                    group.receive(&mut received, from)?;
                    keep(from, &received);
                }
            }
        }
        Ok(shards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_a_keeper_that_stays() {
        let ranks = |ranks: &[usize]| ranks.iter().copied().map(Rank).collect::<Vec<_>>();
        let found = |workers: &[usize], keepers: &[usize], past| -> Vec<(usize, usize)> {
            let pairs = pairs(&ranks(workers), &ranks(keepers), past).into_iter();
            pairs.map(|(from, to)| (from.0, to.0)).collect()
        };
        assert_eq!(found(&[0, 1, 3], &[0, 1, 3], 0), [(0, 1), (1, 3), (3, 0)]);
        assert_eq!(found(&[0, 1, 3], &[0, 1, 3], 1), [(0, 3), (1, 0), (3, 1)]);
        assert_eq!(found(&[0, 1, 2, 3], &[0, 3], 0), [(0, 3), (1, 3), (2, 3), (3, 0)]);
        assert_eq!(found(&[0, 1, 2, 3], &[0, 3], 1), [(1, 0), (2, 0)]);
        assert_eq!(found(&[0, 1, 2], &[1], 0), [(0, 1), (2, 1)]);
        assert_eq!(found(&[0], &[0], 0), []);
        assert_eq!(found(&[0, 1], &[0, 1], 1), []);
        assert_eq!(found(&[0, 1], &[], 0), []);
    }
}
