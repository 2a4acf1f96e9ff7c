//! The rank that the other ranks wait for, by the times that all ranks have exchanged.

use kolo_run_folder::{RankTimes, Run, median};

use super::rank_times::rank_times;

/// The rank that is busy longest, unless the cause is its number of shards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlowRank {
    pub(crate) rank: usize,
    /// Seconds for which it is busy with a shard.
    pub(crate) own: f64,
    /// Median of the same over the other ranks.
    pub(crate) usual: f64,
    /// Seconds per step for which the other ranks wait for it.
    pub(crate) waited: f64,
    /// `waited` as a share of a step.
    pub(crate) share: f64,
}

impl SlowRank {
    /// Returns `None` if the ranks have not compared their times, or if the rank that is busy longest is
    /// not slow but has more shards.
    pub(crate) fn of(run: &Run) -> Option<Self> {
        Self::among(&rank_times(run))
    }

    /// Returns the same from one table of all ranks' times.
    pub(crate) fn among(times: &[RankTimes]) -> Option<Self> {
        let working = || times.iter().enumerate().filter(|(_, times)| times.shards > 0);
        let (rank, slowest) = working().max_by(|a, b| a.1.busy_seconds().total_cmp(&b.1.busy_seconds()))?;
        let others: Vec<RankTimes> =
            working().filter(|(other, _)| *other != rank).map(|(_, times)| *times).collect();
        let of = |value: fn(&RankTimes) -> f64| median(others.iter().map(value));
        let own = per_shard(slowest);
        let usual = of(per_shard)?;
        // The other ranks also wait for the wire: at most the difference is the wait for this rank.
        let more = (own - usual) * slowest.shards as f64;
        let waited = more.min(of(|times| times.exposed_seconds)?).max(0.0);
        let step = slowest.busy_seconds() + slowest.exposed_seconds;
        (own > usual).then_some(SlowRank { rank, own, usual, waited, share: waited / step.max(1e-12) })
    }
}

fn per_shard(times: &RankTimes) -> f64 {
    times.busy_seconds() / times.shards.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn found(ranks: &[(f64, f64)], change: impl Fn(&mut Vec<RankTimes>)) -> Option<SlowRank> {
        let mut run = example::run(100);
        run.ranks = example::comparisons(ranks);
        run.ranks.iter_mut().for_each(|row| change(&mut row.ranks));
        SlowRank::of(&run)
    }

    #[test]
    fn the_others_wait_for_the_difference() {
        let slow = found(&[(0.03, 0.001), (0.01, 0.025), (0.012, 0.023)], |_| ()).unwrap();
        assert_eq!(slow.rank, 0);
        assert!((slow.waited - 0.02).abs() < 1e-9 && (slow.share - 0.02 / 0.031).abs() < 1e-9, "{slow:?}");
        let hidden = found(&[(0.03, 0.001), (0.01, 0.0)], |_| ()).unwrap();
        assert_eq!(hidden.waited, 0.0, "nobody has to wait");
        assert_eq!(SlowRank::of(&example::run(100)), None);
    }

    #[test]
    fn a_larger_share_takes_longer() {
        let slow = found(&[(0.03, 0.0), (0.01, 0.02)], |ranks| ranks[0].shards = 3);
        assert_eq!(slow, None);
        let servers = found(&[(0.03, 0.0), (0.01, 0.02)], |ranks| ranks[1].shards = 0);
        assert_eq!(servers, None, "there is nobody to be compared with");
    }
}
