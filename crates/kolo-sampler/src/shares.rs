//! Distribution of shards among ranks. It decides which rank computes what, never the sum.

use std::ops::Range;
use std::sync::Arc;

use kolo_schedule::Rank;
use kolo_schedule::tree::{Contributions, share};
use kolo_schedule::words::counted;

/// Divides whole shards by weight, one weight a rank. Each rank gets its part rounded down; the remaining
/// shards go to the ranks with the largest remainders, the lower rank first if two are equal (Hamilton's
/// method of largest remainders).
///
/// # Errors
///
/// The number of weights is not `world`, or a weight is negative, not finite, or all are 0; as a message.
pub fn apportion(shards: usize, weights: &[f64], world: usize) -> Result<Vec<usize>, String> {
    if weights.len() != world {
        let (weights, workers) = (counted(weights.len(), "weight"), counted(world, "worker"));
        return Err(format!("{weights} for {workers}; give one for each"));
    }
    if let Some(wrong) = weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
        return Err(format!("a weight of {wrong:?}; give finite numbers from 0"));
    }
    let largest = weights.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return Err("no weight is greater than 0, so nobody would compute".into());
    }
    // Relative to the largest, so that no sum of large numbers is infinite.
    let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
    let due: Vec<f64> = weights.iter().map(|weight| shards as f64 * (weight / largest) / sum).collect();
    let mut counts: Vec<usize> = due.iter().map(|due| due.floor() as usize).collect();
    let mut order: Vec<usize> = (0..world).filter(|&rank| weights[rank] > 0.0).collect();
    order.sort_by(|&a, &b| due[b].fract().total_cmp(&due[a].fract()).then(a.cmp(&b)));
    let left = shards.saturating_sub(counts.iter().sum());
    order.iter().cycle().take(left).for_each(|&rank| counts[rank] += 1);
    Ok(counts)
}

/// Shares of all ranks from those of the workers: servers have none.
pub fn of_workers(shares: &[usize], servers: &[bool]) -> Vec<usize> {
    let mut of_worker = shares.iter().copied();
    servers.iter().map(|server| if *server { 0 } else { of_worker.next().unwrap_or(0) }).collect()
}

/// Equal shares, as [`share`] cuts them.
pub fn equal(shards: usize, world: usize) -> Vec<usize> {
    (0..world).map(|rank| share(shards, world, Rank(rank)).len()).collect()
}

/// The shards of one rank.
fn range(shares: &[usize], rank: Rank) -> Range<usize> {
    let first: usize = shares[..rank.0].iter().sum();
    first..first + shares[rank.0]
}

/// Distribution of every step's shards.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Number of shards of every rank.
    pub shares: Vec<usize>,
    /// This rank's shards.
    pub shards: Range<usize>,
    /// Each rank's contributions to a sum in tree order that changes values, which servers need not know.
    pub contributions: Arc<Contributions>,
    /// Each rank's contributions to a sum that all ranks need.
    pub for_all: Arc<Contributions>,
}

impl Assignment {
    /// The assignment as `rank` sees it; `shares` has each rank's number of shards.
    pub fn new(shares: &[usize], rank: Rank) -> Self {
        let contributions = Arc::new(Contributions::of_shares(shares));
        let for_all = contributions.clone();
        Assignment { shares: shares.to_vec(), shards: range(shares, rank), contributions, for_all }
    }

    /// Marks ranks as summation servers.
    pub fn with_servers(self, servers: &[bool]) -> Self {
        let contributions = Arc::new(Contributions::clone(&self.for_all).with_servers(servers));
        Assignment { contributions, ..self }
    }

    /// The rank of each shard.
    pub fn owners(&self) -> impl Iterator<Item = Rank> {
        let ranks = self.shares.iter().enumerate();
        ranks.flat_map(|(rank, share)| std::iter::repeat_n(Rank(rank), *share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_shards_by_weight() {
        for (shards, weights, expected) in [
            (4, &[3.0, 1.0][..], &[3, 1][..]),
            (4, &[1.0, 1.0, 1.0], &[2, 1, 1]),
            (7, &[1.0, 0.0, 1.0], &[4, 0, 3]),
            (10, &[0.5, 0.3, 0.2], &[5, 3, 2]),
            (1, &[1.0, 2.0, 2.0], &[0, 1, 0]),
            (8, &[1e300, 1e300, 1e-300], &[4, 4, 0]),
            (6, &[f64::MAX, f64::MAX], &[3, 3]),
        ] {
            assert_eq!(apportion(shards, weights, weights.len()).unwrap(), expected, "{weights:?}");
        }
    }

    #[test]
    fn nothing_is_lost_and_no_rank_is_off_by_more_than_one() {
        for world in 1..=9 {
            let weights: Vec<f64> = (0..world).map(|rank| ((rank * 7 + 3) % 5) as f64 + 0.1).collect();
            let sum: f64 = weights.iter().sum();
            for shards in 1..60 {
                let counts = apportion(shards, &weights, world).unwrap();
                assert_eq!(counts.iter().sum::<usize>(), shards);
                let off =
                    |(count, weight): (&usize, &f64)| (*count as f64 - shards as f64 * weight / sum).abs();
                assert!(counts.iter().zip(&weights).map(off).all(|off| off < 1.0), "{counts:?} {weights:?}");
            }
        }
    }

    #[test]
    fn wrong_weights_are_named() {
        for (weights, text) in [
            (&[1.0][..], "1 weight for 2 workers"),
            (&[1.0, -2.0], "-2"),
            (&[1.0, f64::NAN], "NaN"),
            (&[0.0, 0.0], "no weight"),
        ] {
            let error = apportion(4, weights, 2).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
