//! Copies of each worker's private state, which it sends to the next workers in the ring.

use super::redistribute::Holdings;
use kolo_comm::Rank;

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

/// Returns the runs that each rank wants to keep of what the workers `have`: each worker's go to the next
/// keepers.
pub fn kept(workers: &[Rank], keepers: &[Rank], have: &[Holdings]) -> Vec<Holdings> {
    let mut want = vec![Holdings::default(); have.len()];
    for (from, to) in (0..HOLDERS).flat_map(|past| pairs(workers, keepers, past)) {
        want[to.0].0.extend(have[from.0].0.iter().cloned());
    }
    want
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{StateKind, StateName};

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

    #[test]
    fn keepers_want_what_the_two_workers_before_them_have() {
        let name = |shard| StateName::of_shard(StateKind::Reduction, "residual", shard);
        let of = |shards: &[usize]| Holdings(shards.iter().map(|shard| (name(*shard), 0..7)).collect());
        // Rank 2 is a server, and rank 3 leaves.
        let workers = [0, 1, 3, 4].map(Rank);
        let have = [of(&[0]), of(&[1, 2]), of(&[]), of(&[3]), of(&[4])];
        let want = kept(&workers, &[0, 1, 4].map(Rank), &have);
        assert_eq!(want, [of(&[4, 1, 2, 3]), of(&[0, 4]), of(&[]), of(&[]), of(&[1, 2, 3, 0])]);
    }
}
