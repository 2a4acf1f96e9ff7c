//! Time of each rank, over all comparisons of the newest generation.

use std::collections::BTreeMap;

use kolo_run_folder::{RankTimes, RanksRow, Run, median};

/// Returns each rank's median of the times that the ranks have exchanged; empty if they have exchanged
/// none. Rank numbers change with the generation, so only the newest one counts.
pub(crate) fn rank_times(run: &Run) -> Vec<RankTimes> {
    let Some(newest) = run.ranks.last() else { return Vec::new() };
    let rows: Vec<&RanksRow> = run
        .ranks
        .iter()
        .filter(|row| row.generation == newest.generation && row.ranks.len() == newest.ranks.len())
        .collect();
    (0..newest.ranks.len()).map(|rank| of_rank(&rows, rank)).collect()
}

fn of_rank(rows: &[&RanksRow], rank: usize) -> RankTimes {
    let times = || rows.iter().map(|row| row.ranks[rank]);
    let of = |value: fn(RankTimes) -> f64| median(times().map(value)).unwrap_or(0.0);
    let waited_for = most_frequent(times().filter_map(|times| times.waited_for));
    let waits = times().filter(|times| times.waited_for == waited_for).map(|times| times.waited_seconds);
    RankTimes {
        shards: of(|times| times.shards as f64) as usize,
        compute_seconds: of(|times| times.compute_seconds),
        data_seconds: of(|times| times.data_seconds),
        stalled_seconds: of(|times| times.stalled_seconds),
        exposed_seconds: of(|times| times.exposed_seconds),
        waited_for,
        waited_seconds: median(waits).unwrap_or(0.0),
    }
}

/// Returns the most frequent rank; of several the lowest.
fn most_frequent(ranks: impl Iterator<Item = usize>) -> Option<usize> {
    let mut counts = BTreeMap::new();
    ranks.for_each(|rank| *counts.entry(rank).or_insert(0) += 1);
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(rank, _)| rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn medians_are_of_the_newest_generation() {
        let mut run = example::run(100);
        assert_eq!(rank_times(&run), []);
        run.ranks = example::comparisons(&[(0.02, 0.0), (0.01, 0.01)]);
        run.ranks[1].ranks[0].compute_seconds = 7.0;
        let mut earlier = run.ranks[0].clone();
        earlier.ranks = vec![RankTimes { compute_seconds: 3.0, ..RankTimes::default() }; 3];
        run.ranks[1..].iter_mut().for_each(|row| row.generation = 2);
        run.ranks[0] = earlier;
        let times = rank_times(&run);
        assert_eq!(times.iter().map(|times| times.compute_seconds).collect::<Vec<_>>(), [0.02, 0.01]);
        assert_eq!((times[1].exposed_seconds, times[1].waited_for), (0.01, Some(0)));
    }

    #[test]
    fn the_peer_is_the_one_that_is_waited_for_most_often() {
        let mut run = example::run(100);
        run.ranks = [(0, 0.01), (0, 0.01), (4, 0.3), (2, 0.2), (4, 0.5)]
            .map(|(peer, seconds)| {
                let mut row = example::comparisons(&[(0.02, 0.01)]).remove(0);
                (row.ranks[0].waited_for, row.ranks[0].waited_seconds) = (Some(peer), seconds);
                row
            })
            .into();
        // The median of the numbers is rank 2. Of two that are as frequent the lower one counts.
        assert_eq!((rank_times(&run)[0].waited_for, rank_times(&run)[0].waited_seconds), (Some(0), 0.01));
    }
}
