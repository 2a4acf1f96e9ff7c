//! Choice of shards that move away from a slow rank, and back: a pure function of measured seconds a shard.

use kolo_schedule::seconds::{LEAST, Seconds};

/// Factor to which the predicted time of a step has to fall for whole shards to move at all: they take other
/// data with them.
const WORTH: f64 = 0.95;

/// Other shares, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebalance {
    /// Shards of each rank.
    pub shares: Vec<usize>,
    /// The reason with the numbers, for the user.
    pub reason: String,
}

/// Returns shares with which a step is predicted to take at least 5 % and a millisecond less than with
/// `current`, or `None`. `seconds` has each rank's seconds a shard. `usual` are the shares that the job
/// began with: they are preferred to others that are about as good, so that shards come back when a rank
/// recovers.
///
/// If there are at least as many shards as ranks, a rank that had some keeps one, so that it is still
/// measured, and a rank that had none gets none.
///
/// # Panics
///
/// If the three slices differ in length.
pub fn rebalance(seconds: &[f64], current: &[usize], usual: &[usize]) -> Option<Rebalance> {
    assert!(seconds.len() == current.len() && current.len() == usual.len(), "one of each for every rank");
    if seconds.iter().any(|seconds| !seconds.is_finite() || *seconds <= 0.0) {
        return None;
    }
    let takes = |shares: &[usize]| {
        shares.iter().zip(seconds).map(|(share, seconds)| *share as f64 * seconds).fold(0.0, f64::max)
    };
    let even = balance(seconds, usual);
    let shares = if takes(usual) * WORTH <= takes(&even) { usual.to_vec() } else { even };
    let (before, after) = (takes(current), takes(&shares));
    if after > before * WORTH || before - after < LEAST {
        return None;
    }
    let reason = format!(
        "shards go from {current:?} to {shares:?}, one number a rank, so that a step's computing takes {} and not {}",
        Seconds(after),
        Seconds(before)
    );
    Some(Rebalance { shares, reason })
}

/// Returns shares for finishing times as equal as whole shards allow.
fn balance(seconds: &[f64], usual: &[usize]) -> Vec<usize> {
    let (world, shards) = (seconds.len(), usual.iter().sum::<usize>());
    let enough = shards >= world;
    let bounds = |rank: usize| match (enough, usual[rank]) {
        (false, _) => (0, shards),
        (true, 0) => (0, 0),
        (true, _) => (1, shards),
    };
    let speed: f64 = (0..world).filter(|rank| bounds(*rank).1 > 0).map(|rank| 1.0 / seconds[rank]).sum();
    // Rounded down, no rank finishes later than if shards could be cut, so no shard is misplaced.
    let due = |rank: usize| (shards as f64 / (seconds[rank] * speed)).floor() as usize;
    let mut shares: Vec<usize> =
        (0..world).map(|rank| due(rank).clamp(bounds(rank).0, bounds(rank).1)).collect();
    let finish =
        |shares: &[usize], rank: usize, change: usize| (shares[rank] + change) as f64 * seconds[rank];
    // Less than one shard a rank is missing or surplus.
    for _ in 0..2 * world {
        let sum: usize = shares.iter().sum();
        if sum < shards {
            let open = (0..world).filter(|rank| shares[*rank] < bounds(*rank).1);
            let next = open.min_by(|a, b| finish(&shares, *a, 1).total_cmp(&finish(&shares, *b, 1)));
            next.into_iter().for_each(|rank| shares[rank] += 1);
        } else if sum > shards {
            let open = (0..world).filter(|rank| shares[*rank] > bounds(*rank).0);
            let next = open.max_by(|a, b| finish(&shares, *a, 0).total_cmp(&finish(&shares, *b, 0)));
            next.into_iter().for_each(|rank| shares[rank] -= 1);
        }
    }
    match shares.iter().sum::<usize>() == shards {
        true => shares,
        false => usual.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(seconds: &[f64], current: &[usize], usual: &[usize]) -> Option<Vec<usize>> {
        rebalance(seconds, current, usual).map(|found| found.shares)
    }

    #[test]
    fn shards_leave_the_slow_rank_and_come_back() {
        assert_eq!(shares(&[0.1, 0.3], &[4, 4], &[4, 4]), Some(vec![6, 2]));
        assert_eq!(shares(&[0.1, 0.3], &[6, 2], &[4, 4]), None, "as good as it gets");
        assert_eq!(shares(&[0.1, 0.1], &[6, 2], &[4, 4]), Some(vec![4, 4]));
        let reason = rebalance(&[0.1, 0.3], &[4, 4], &[4, 4]).unwrap().reason;
        assert!(
            reason.contains("[4, 4] to [6, 2]") && reason.contains("0.600 s and not 1.200 s"),
            "{reason}"
        );
    }

    #[test]
    fn nothing_moves_for_little() {
        assert_eq!(shares(&[0.1, 0.11], &[4, 4], &[4, 4]), None);
        assert_eq!(shares(&[0.1, 0.3], &[1, 1], &[1, 1]), None, "a shard is not cut");
        assert_eq!(shares(&[0.100, 0.104, 0.102], &[34, 33, 33], &[34, 33, 33]), None);
        assert_eq!(shares(&[1e-4, 3e-4], &[4, 4], &[4, 4]), None, "less than a time slice is no matter");
        assert_eq!(shares(&[0.0, 0.1], &[1, 3], &[1, 3]), None, "nothing has been measured");
    }

    #[test]
    fn usual_shares_win_over_others_that_are_about_as_good() {
        assert_eq!(shares(&[0.100, 0.102, 0.1], &[98, 1, 1], &[33, 33, 34]), Some(vec![33, 33, 34]));
    }

    #[test]
    fn idle_ranks_help_where_shards_are_few() {
        assert_eq!(shares(&[1.0, 0.2, 0.2], &[1, 1, 0], &[1, 1, 0]), Some(vec![0, 1, 1]));
        // A rank whose weight gave it no shards stays without.
        assert_eq!(shares(&[1.0, 0.1, 0.2], &[4, 0, 4], &[4, 0, 4]), Some(vec![1, 0, 7]));
    }

    /// Compared with all ways to divide shards among three ranks.
    #[test]
    fn no_other_shares_would_be_quicker() {
        for n in 0..200usize {
            let seconds = [7, 11, 13].map(|prime| 0.1 + (n * prime % 17) as f64 / 10.0);
            let shards = 3 + n % 20;
            let usual = kolo_sampler::equal(shards, 3);
            let takes = |shares: &[usize]| (0..3).map(|r| shares[r] as f64 * seconds[r]).fold(0.0, f64::max);
            let found = balance(&seconds, &usual);
            assert_eq!(found.iter().sum::<usize>(), shards);
            for first in 1..=shards - 2 {
                for second in 1..=shards - first - 1 {
                    let other = [first, second, shards - first - second];
                    assert!(
                        takes(&found) <= takes(&other) + 1e-12,
                        "{seconds:?}: {found:?}, better {other:?}"
                    );
                }
            }
        }
    }
}
