//! Caches the costs of collectives on one cluster.

use std::cell::RefCell;
use std::collections::HashMap;

use kolo_schedule::Travel;

use crate::cluster::Cluster;
use crate::step::load::{Load, Pick, load};

/// Maximum number of ranks for which every length is counted. In larger worlds a schedule takes up to seconds
/// to build, so costs are counted only for powers of four of bytes.
const EVERY_LENGTH: usize = 64;

/// Costs of a cluster's collectives. Large clusters interpolate linearly between powers of four of bytes.
#[derive(Debug)]
pub struct LoadTable {
    cluster: Cluster,
    known: RefCell<HashMap<Key, Load>>,
}

type Key = (u64, Travel, Pick);

impl LoadTable {
    /// Creates an empty table.
    pub fn new(cluster: Cluster) -> Self {
        LoadTable { cluster, known: RefCell::default() }
    }

    /// Returns the cluster of this table.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the load of a bucket that takes this many wire bytes per shard.
    pub fn load(&self, bytes: f64, travel: Travel, pick: Pick) -> Load {
        let whole = bytes.ceil().max(0.0) as u64;
        if self.cluster.topology.world() <= EVERY_LENGTH {
            return self.at(whole, travel, pick);
        }
        let below = 1 << (whole.max(1).ilog2() / 2 * 2);
        if whole <= below {
            return self.at(below, travel, pick);
        }
        let (low, high) = (self.at(below, travel, pick), self.at(4 * below, travel, pick));
        let share = (bytes - below as f64) / (3 * below) as f64;
        let between = |low: f64, high: f64| low + (high - low) * share;
        let (seconds, cpu) = (between(low.seconds, high.seconds), between(low.cpu, high.cpu));
        Load { seconds, cpu, algorithm: if share < 0.5 { low.algorithm } else { high.algorithm } }
    }

    fn at(&self, bytes: u64, travel: Travel, pick: Pick) -> Load {
        let of = || load(bytes as f64, travel, &self.cluster, pick);
        *self.known.borrow_mut().entry((bytes, travel, pick)).or_insert_with(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_worlds_are_interpolated() {
        let table = LoadTable::new(Cluster::over_ethernet(65, 1, 10.0));
        for bytes in [5.5e5, 3e6, 7e7] {
            let (travel, pick) = (Travel::Summed { rounds: 1 }, Pick::Exact);
            let (interpolated, exact) =
                (table.load(bytes, travel, pick), load(bytes, travel, table.cluster(), pick));
            let ratio = interpolated.seconds / exact.seconds;
            assert!((ratio - 1.0).abs() < 0.05, "{bytes}: {interpolated:?} {exact:?}");
        }
        assert_eq!(table.known.borrow().len(), 5, "4^9 to 4^11, 4^13 and 4^14");
    }
}
