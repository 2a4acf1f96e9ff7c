//! Time of a bucket's collectives.

use kolo_schedule::{Algorithm, Chunks, Cost, DType, Operation, Traffic, Travel};

use crate::cluster::Cluster;
use crate::forecast::quickest;

/// Cost of one collective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Seconds, if nothing else runs.
    pub seconds: f64,
    /// Seconds of these in which it occupies a worker's core.
    pub cpu: f64,
    /// Algorithm that runs.
    pub algorithm: &'static str,
}

/// All-reduces that may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pick {
    /// The fastest that keeps the bits for any number of workers.
    #[default]
    Exact,
    /// The fastest of all.
    Any,
    /// This algorithm, if it supports the operation.
    Named(&'static str),
}

/// Returns the load of a bucket that takes this many wire bytes per shard.
pub(crate) fn load(bytes: f64, travel: Travel, cluster: &Cluster, pick: Pick) -> Load {
    if cluster.workers() < 2 {
        return Load::default();
    }
    match travel {
        Travel::Summed { rounds: 1 } => collective(&Operation::AllReduce, bytes, cluster, pick),
        Travel::Summed { rounds } => {
            let count = f64::from(rounds);
            let one = collective(&Operation::AllReduce, bytes / count, cluster, pick);
            Load { seconds: count * one.seconds, cpu: count * one.cpu, ..one }
        }
        Travel::ToOwners => collective(&Operation::AllReduce, bytes, cluster, Pick::Named("direct")),
        Travel::Gathered => {
            // Servers have nothing to add.
            let all = cluster.workers() as f64 * bytes;
            collective(&Operation::AllGather(Chunks::Equal), all, &cluster.without_servers(), Pick::Exact)
        }
    }
}

fn collective(operation: &Operation, bytes: f64, cluster: &Cluster, pick: Pick) -> Load {
    let size = DType::F32.size();
    let world = cluster.topology.world();
    let elements = (bytes / size as f64).ceil().max(1.0) as usize;
    let len = if operation.adds() { elements } else { elements.div_ceil(world) * world };
    let exact = |algorithm: &Algorithm| algorithm.keeps_tree || !operation.adds();
    let allowed = |algorithm: &Algorithm| match pick {
        Pick::Exact => exact(algorithm),
        Pick::Any => true,
        Pick::Named(name) => name == algorithm.name,
    };
    let quickest =
        |allowed: &dyn Fn(&Algorithm) -> bool| quickest(operation, len, DType::F32, cluster, allowed);
    let Some(found) = quickest(&allowed).or_else(|| quickest(&exact)) else {
        return Load::default();
    };
    // Within nodes, and on additions.
    let near = cluster.network.seconds(&Cost { far: Traffic::default(), ..found.cost }, size);
    let far = found.cost.far.exchanged + found.cost.far.one_way / 2.0;
    let ranks = cluster.topology.nodes().iter().map(Vec::len).max().unwrap_or(1) as f64;
    let sockets = found.cost.far.handled * cluster.network.far.per_message
        + far / ranks * size as f64 * cluster.far_cpu;
    let cpu = (near + sockets * cluster.network.crowding).max(0.0);
    Load { seconds: found.seconds.max(cpu), cpu, algorithm: found.algorithm.name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterFile;

    fn cluster(workers: usize) -> Cluster {
        ClusterFile::of_link("1gbe").of(workers).unwrap()
    }

    #[test]
    fn gathered_bytes_grow_with_the_workers() {
        let seconds = |workers| load(1e6, Travel::Gathered, &cluster(workers), Pick::Exact).seconds;
        // Each of 4 workers receives 3 MB, each of 8 receives 7.
        let [four, eight] = [seconds(4), seconds(8)].map(|seconds| seconds * 0.941e9 / 8.0 / 1e6);
        assert!((four - 3.0).abs() < 0.15 && (eight - 7.0).abs() < 0.35, "{four} {eight}");
        let summed = load(1e6, Travel::Summed { rounds: 1 }, &cluster(8), Pick::Exact).seconds;
        assert!(summed < seconds(8) / 2.0);
    }

    #[test]
    fn a_core_is_busy_with_part_of_the_load() {
        let result = load(46.8e6, Travel::Summed { rounds: 1 }, &cluster(2), Pick::Exact);
        // 0.4 s on the wire, 10 ms and the additions on a core.
        assert!(result.seconds > 0.39 && result.cpu > 9e-3 && result.cpu < 20e-3, "{result:?}");
        let looped = ClusterFile::of_link("loopback").of(2).unwrap();
        let result = load(46.8e6, Travel::Summed { rounds: 1 }, &looped, Pick::Exact);
        assert!(result.cpu / result.seconds > 0.8, "{result:?}");
        assert_eq!(load(1e6, Travel::ToOwners, &cluster(1), Pick::Any), Load::default());
    }
}
