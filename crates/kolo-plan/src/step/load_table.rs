//! What collectives take on one cluster, each looked up once.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::cluster::Cluster;
use crate::step::reduction::{Load, Pick, Travel, load};

/// Worlds of more ranks than this have costs counted for powers of four of bytes only: there a schedule
/// takes up to seconds to build.
const EVERY_LENGTH: usize = 64;

/// The costs of a cluster's collectives. Between two powers of four a large cluster's are taken to grow
/// evenly with the bytes.
#[derive(Debug)]
pub struct LoadTable {
    cluster: Cluster,
    known: RefCell<HashMap<Key, Load>>,
}

type Key = (u64, Travel, Pick);

impl LoadTable {
    /// A table of which nothing is known yet.
    pub fn new(cluster: Cluster) -> Self {
        LoadTable { cluster, known: RefCell::default() }
    }

    /// The cluster whose costs these are.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What so many bytes take that a shard says of a bucket.
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
            let (told, exact) = (table.load(bytes, travel, pick), load(bytes, travel, table.cluster(), pick));
            let ratio = told.seconds / exact.seconds;
            assert!((ratio - 1.0).abs() < 0.05, "{bytes}: {told:?} {exact:?}");
        }
        assert_eq!(table.known.borrow().len(), 5, "4^9 to 4^11, 4^13 and 4^14");
    }
}
