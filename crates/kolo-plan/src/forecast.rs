//! Forecasts the time of every algorithm.

use kolo_schedule::tree::Contributions;
use kolo_schedule::{ALGORITHMS, Algorithm, Cost, DType, Operation, Problem, Rank};

use crate::cluster::Cluster;

/// Forecast for one algorithm.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// Messages, elements and additions on the critical path.
    pub cost: Cost,
    /// Predicted seconds on the cluster.
    pub seconds: f64,
}

/// Returns the forecast for an operation on `len` elements with each algorithm that supports it on the
/// cluster, the fastest first. Each rank contributes one part to a sum; servers contribute nothing. The
/// result includes algorithms that run only on request because their sums depend on the number of ranks (see
/// [`Algorithm::keeps_tree`]).
pub fn forecast(operation: &Operation, len: usize, dtype: DType, cluster: &Cluster) -> Vec<Forecast> {
    let contributions = &cluster.contributions();
    let problem = problem(operation, len, dtype, cluster, contributions);
    let counted = |algorithm| count(algorithm, &problem, dtype, cluster);
    let mut forecasts: Vec<Forecast> = ALGORITHMS.iter().filter_map(counted).collect();
    forecasts.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    forecasts
}

/// Returns the fastest algorithm among the `allowed`. Counting a cost takes seconds and hundreds of megabytes
/// in large worlds, so the function skips algorithms whose lower bound is already slower.
pub(crate) fn quickest(
    operation: &Operation,
    len: usize,
    dtype: DType,
    cluster: &Cluster,
    allowed: &dyn Fn(&Algorithm) -> bool,
) -> Option<Forecast> {
    let contributions = &cluster.contributions();
    let problem = problem(operation, len, dtype, cluster, contributions);
    let lower_bound = |algorithm: &'static Algorithm| {
        let cost = Cost::lower_bound(algorithm, &problem).ok()?;
        Some((cluster.network.seconds(&cost, dtype.size()), algorithm))
    };
    let allowed = ALGORITHMS.iter().filter(|algorithm| allowed(algorithm));
    let mut candidates: Vec<(f64, &Algorithm)> = allowed.filter_map(lower_bound).collect();
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Option<Forecast> = None;
    for (least, algorithm) in candidates {
        let so_far = best.as_ref().map_or(f64::INFINITY, |best| best.seconds);
        if least > so_far {
            break;
        }
        best = count(algorithm, &problem, dtype, cluster).filter(|found| found.seconds < so_far).or(best);
    }
    best
}

fn problem<'a>(
    operation: &'a Operation,
    len: usize,
    dtype: DType,
    cluster: &'a Cluster,
    contributions: &'a Contributions,
) -> Problem<'a> {
    let topology = &cluster.topology;
    let rank = operation.root().unwrap_or(Rank(0));
    let segment = cluster.network.longest_message(topology) / dtype.size();
    Problem { operation, rank, len, contributions, topology, segment }
}

fn count(
    algorithm: &'static Algorithm,
    problem: &Problem<'_>,
    dtype: DType,
    cluster: &Cluster,
) -> Option<Forecast> {
    let cost = Cost::of(algorithm, problem).ok()?;
    Some(Forecast { algorithm, cost, seconds: cluster.network.seconds(&cost, dtype.size()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fastest(len: usize, cluster: &Cluster) -> (&'static str, f64) {
        let ranked = forecast(&Operation::AllReduce, len, DType::F32, cluster);
        assert!(ranked.is_sorted_by(|a, b| a.seconds <= b.seconds));
        (ranked[0].algorithm.name, ranked[0].seconds)
    }

    #[test]
    fn no_algorithm_is_faster_than_its_links() {
        for gigabits in [1.0, 10.0, 100.0] {
            for nodes in [2usize, 3, 8, 40, 300] {
                let (len, cluster) = (10_000_000, Cluster::over_ethernet(nodes, 1, gigabits));
                let bytes = 2.0 * (nodes - 1) as f64 / nodes as f64 * 4.0 * len as f64;
                let least = bytes * 8.0 / (gigabits * 1e9);
                let (name, seconds) = fastest(len, &cluster);
                assert!(seconds > 0.999 * least, "{name} on {nodes}: {seconds} s, the links take {least} s");
                assert!(seconds < 2.0 * least, "{name} on {nodes}: {seconds} s, the links take {least} s");
            }
        }
    }

    #[test]
    fn skipped_algorithms_are_not_the_fastest() {
        for (ranks, per_node, gigabits) in
            [(2, 1, 1.0), (5, 4, 10.0), (16, 4, 0.1), (48, 1, 100.0), (8, 8, 1.0)]
        {
            let cluster = Cluster::over_ethernet(ranks, per_node, gigabits);
            for len in [1, 1000, 100_000, 10_000_000] {
                let all = forecast(&Operation::AllReduce, len, DType::F32, &cluster);
                let found = quickest(&Operation::AllReduce, len, DType::F32, &cluster, &|_| true).unwrap();
                assert_eq!(found.seconds, all[0].seconds, "{ranks} ranks, {len} elements");
                let contributions = &cluster.contributions();
                let problem = problem(&Operation::AllReduce, len, DType::F32, &cluster, contributions);
                for counted in all {
                    let least = Cost::lower_bound(counted.algorithm, &problem).unwrap();
                    let least = cluster.network.seconds(&least, DType::F32.size());
                    let name = counted.algorithm.name;
                    assert!(least <= counted.seconds * 1.0001, "{name}: {least} {}", counted.seconds);
                }
            }
        }
    }

    #[test]
    fn short_messages_pay_for_latency_and_long_ones_for_bytes() {
        let (slow, fast) = (Cluster::over_ethernet(16, 1, 1.0), Cluster::over_ethernet(16, 1, 100.0));
        assert!((fastest(1, &slow).1 / fastest(1, &fast).1 - 1.0).abs() < 0.05);
        let (long, longer) = (fastest(10_000_000, &fast).1, fastest(10_000_000, &slow).1);
        assert!(longer > 20.0 * long, "{longer} s over 1 Gbit/s, {long} s over 100 Gbit/s");
    }

    #[test]
    fn a_shared_link_slows_algorithms_that_ignore_nodes() {
        let seconds = |name: &str, per_node| {
            let cluster = Cluster::over_ethernet(64, per_node, 10.0);
            let ranked = forecast(&Operation::AllReduce, 1_000_000, DType::F32, &cluster);
            let found = ranked.iter().find(|forecast| forecast.algorithm.name == name);
            found.map(|forecast| forecast.seconds)
        };
        // An algorithm with a message for each pair of ranks fills the link that eight ranks share.
        assert!(seconds("direct", 8) > seconds("direct", 1).map(|alone| 4.0 * alone));
        assert!(seconds("hierarchical", 8) < seconds("direct", 8).map(|direct| direct / 4.0));
        assert_eq!(seconds("hierarchical", 1), None, "there is no hierarchy without nodes");
    }

    /// NCCL 2.30, tuning.cc, has base + (2(P−1) − 2(N−1))·3.4 µs + 2(N−1)·14 µs for a ring of P ranks on N
    /// nodes, Simple over NVLink and a network. On Kolo's critical path messages cross nodes 2N times.
    #[test]
    fn ring_latencies_match_the_published_ones() {
        let micros = |nodes: usize, ranks_per_node: usize| {
            let cluster = Cluster::over_ethernet(nodes * ranks_per_node, ranks_per_node, 100.0);
            let ranked = forecast(&Operation::AllReduce, 1 << 20, DType::F32, &cluster);
            let ring = ranked.iter().find(|found| found.algorithm.name == "ring").unwrap();
            8.4 + ring.cost.near.messages * 3.4 + ring.cost.far.messages * 14.0
        };
        assert!((micros(1, 8) - 56.0).abs() < 0.05, "{}", micros(1, 8));
        let crossings = 2.0 * (14.0 - 3.4);
        assert!((micros(4, 8) - (282.8 + crossings)).abs() < 0.05, "{}", micros(4, 8));
    }
}
