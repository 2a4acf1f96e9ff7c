//! A profiled step on more workers.

use kolo_schedule::{DType, Operation};
use serde::Serialize;

use crate::cluster::Cluster;
use crate::forecast::forecast;
use crate::step::profile::StepProfile;
use crate::step::timeline::timeline;

/// What a step takes on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Workers.
    pub workers: usize,
    /// Seconds of a step.
    pub seconds: f64,
    /// Those in which workers wait for communication.
    pub exposed: f64,
    /// Those in which the wire is busy.
    pub wire: f64,
    /// The step of one worker by this one: what is left of each worker's speed.
    pub efficiency: f64,
    /// The algorithm that reduces the largest bucket; nothing where there is one worker.
    pub algorithm: &'static str,
}

/// Follows a profiled step on all workers of a cluster, each of which computes as long as the one that was
/// profiled. Buckets of `f32` are all-reduced by the fastest algorithm that keeps the bits for any number of
/// workers.
pub fn predict(profile: &StepProfile, cluster: &Cluster, overlap_forward: bool) -> Prediction {
    let workers = cluster.topology.world();
    let mut known: Vec<(u64, f64, &'static str)> = Vec::new();
    let mut of = |bytes: f64| {
        let len = (bytes / DType::F32.size() as f64).ceil() as u64;
        if let Some(found) = known.iter().find(|(known, ..)| *known == len) {
            return *found;
        }
        let (seconds, name) = if workers > 1 { fastest(len as usize, cluster) } else { (0.0, "") };
        known.push((len, seconds, name));
        (len, seconds, name)
    };
    let reduced: Vec<(u64, f64, &'static str)> = profile.buckets.iter().map(|b| of(b.bytes)).collect();
    let seconds: Vec<f64> = reduced.iter().map(|(_, seconds, _)| *seconds).collect();
    let told = timeline(profile, &seconds, overlap_forward);
    let algorithm = reduced.iter().max_by_key(|(len, ..)| *len).map_or("", |(_, _, name)| name);
    let efficiency = profile.alone() / told.step;
    Prediction { workers, seconds: told.step, exposed: told.exposed, wire: told.wire, efficiency, algorithm }
}

/// The seconds and the name of the fastest all-reduce of so many elements that keeps the tree.
fn fastest(len: usize, cluster: &Cluster) -> (f64, &'static str) {
    let forecasts = forecast(&Operation::AllReduce, len, DType::F32, cluster);
    let fastest = forecasts.iter().find(|forecast| forecast.algorithm.keeps_tree);
    fastest.map_or((0.0, ""), |forecast| (forecast.seconds, forecast.algorithm.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ResNet-18 has 44.7 MB of gradients.
    fn resnet18(cap: f64) -> StepProfile {
        StepProfile::even(0.012, 0.018, 0.006, 44.7e6, cap)
    }

    #[test]
    fn one_worker_waits_for_nobody() {
        let told = predict(&resnet18(25e6), &Cluster::over_ethernet(1, 1, 1.0), true);
        assert!((told.efficiency - 1.0).abs() < 1e-12 && told.exposed == 0.0);
    }

    #[test]
    fn a_slow_link_is_all_that_counts() {
        for workers in [2, 8] {
            let told = predict(&resnet18(5e6), &Cluster::over_ethernet(workers, 1, 0.1), true);
            let wire = 2.0 * (workers - 1) as f64 / workers as f64 * 44.7e6 * 8.0 / 1e8;
            assert!(told.seconds > wire && told.seconds < 1.3 * wire, "{told:?} {wire}");
        }
    }

    #[test]
    fn sixteen_thousand_workers_are_followed_as_well() {
        let told = predict(&resnet18(25e6), &Cluster::over_ethernet(16_384, 8, 100.0), true);
        assert_eq!(told.workers, 16_384);
        assert!(told.efficiency > 0.05 && told.efficiency < 1.0, "{told:?}");
    }
}
