//! Predicts a profiled step on more workers.

use kolo_schedule::Travel;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::step::choices::{Choices, Sync};
use crate::step::load::{Load, Pick};
use crate::step::load_table::LoadTable;
use crate::step::profile::StepProfile;
use crate::step::timeline::{Overlap, Timeline, timeline};

/// Bytes of the messages in which workers share the loss and agree on a step.
const AGREEMENT: f64 = 16.0;

/// Predicted step on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Number of workers.
    pub workers: usize,
    /// Seconds per step.
    pub seconds: f64,
    /// Seconds per step in which workers wait for communication.
    pub exposed: f64,
    /// Seconds per step in which the wire is busy.
    pub wire: f64,
    /// Efficiency of each worker: computing time of a single worker divided by the step time.
    pub efficiency: f64,
    /// Number of shards per worker in a step.
    pub shards: usize,
    /// Algorithm that reduces the largest bucket; empty for one worker.
    pub algorithm: &'static str,
}

/// Predicts a step on all workers of a cluster, each of which computes like the profiled worker. Workers that
/// share cores compute longer, and communication takes time from computation.
pub fn predict(profile: &StepProfile, table: &LoadTable, choices: &Choices) -> Prediction {
    let cluster = table.cluster();
    let workers = cluster.workers();
    let alone = profile.accumulating(choices.accumulate).alone();
    let profile = choices.caps.map_or_else(|| profile.clone(), |caps| profile.cut(caps));
    let slowdown = cluster.cores.map_or(1.0, |cores| cores.slowdown());
    let waiting = match choices.sync {
        // Islands seldom wait for each other.
        Sync::Rounds(_) => 0.0,
        Sync::EveryStep | Sync::Delayed => cluster.cores.map_or(0.0, |cores| cores.waiting()),
    };
    let mut profile = profile.accumulating(choices.accumulate).slowed(slowdown).longer_by(waiting);
    let is_deferred = defers(cluster, choices);
    let loads = match is_deferred {
        true => vec![Load { seconds: 0.0, cpu: 0.0, algorithm: "deferred" }; profile.buckets.len()],
        false => loads(&profile, table, choices),
    };
    let (timeline, algorithm) = match choices.sync {
        Sync::Rounds(steps) => in_rounds(&profile, &loads, steps),
        Sync::EveryStep | Sync::Delayed => {
            if is_deferred {
                profile.optimizer += slowdown * cluster.network.add.seconds(profile.bytes());
            }
            let overlap = Overlap {
                forward: choices.overlap_forward,
                delayed: choices.sync == Sync::Delayed,
                contended: cluster.cores.map_or(0.0, |cores| cores.contended()),
                agreement: (choices.agree && workers > 1).then(|| agreement(table, choices)),
            };
            (timeline(&profile, &loads, overlap), longest(&loads))
        }
    };
    Prediction {
        workers,
        seconds: timeline.step,
        exposed: timeline.exposed,
        wire: timeline.wire,
        efficiency: alone / timeline.step,
        shards: choices.accumulate.max(1),
        algorithm,
    }
}

/// Returns true if the optimizer adds gradients while it reads them. This applies to two workers that read
/// each other's memory and have one shard each, if an exact sum by no particular algorithm is wanted.
fn defers(cluster: &Cluster, choices: &Choices) -> bool {
    let is_exact = choices.reduction.is_exact && choices.pick == Pick::Exact;
    let is_plain = choices.sync == Sync::EveryStep && choices.accumulate <= 1;
    let is_one_memory = cluster.shares_memory && cluster.topology.nodes().len() == 1;
    is_exact && is_plain && cluster.workers() == 2 && cluster.servers == 0 && is_one_memory
}

fn loads(profile: &StepProfile, table: &LoadTable, choices: &Choices) -> Vec<Load> {
    let of = |bytes: f64| table.load(bytes, choices.reduction.travel, choices.pick);
    profile.buckets.iter().map(|bucket| of(bucket.wire_bytes)).collect()
}

/// Returns the load of an agreement. In large worlds the fastest algorithm for so few bytes is known, and
/// counting the others takes a minute.
fn agreement(table: &LoadTable, choices: &Choices) -> Load {
    let is_large = table.cluster().topology.world() > 1024;
    let pick = if is_large { Pick::Named("recursive-doubling") } else { choices.pick };
    table.load(AGREEMENT, Travel::Summed { rounds: 1 }, pick)
}

fn longest(loads: &[Load]) -> &'static str {
    loads.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds)).map_or("", |load| load.algorithm)
}

/// Returns the timeline of islands, which compute alone and wait for a whole outer step once in `steps`.
fn in_rounds(profile: &StepProfile, loads: &[Load], steps: u64) -> (Timeline, &'static str) {
    let outer: f64 = loads.iter().map(|load| load.seconds).sum();
    let exposed = outer / steps.max(1) as f64;
    (Timeline { step: profile.alone() + exposed, exposed, wire: exposed }, longest(loads))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterFile;

    fn over(profile: &StepProfile, cluster: Cluster, choices: &Choices) -> Prediction {
        predict(profile, &LoadTable::new(cluster), choices)
    }

    /// ResNet-18 has 44.7 MB of gradients.
    fn resnet18(cap: f64) -> StepProfile {
        StepProfile::even(0.012, 0.018, 0.006, 44.7e6, cap)
    }

    #[test]
    fn one_worker_waits_for_nobody() {
        let prediction = over(&resnet18(25e6), Cluster::over_ethernet(1, 1, 1.0), &Choices::default());
        assert!((prediction.efficiency - 1.0).abs() < 1e-12 && prediction.exposed == 0.0);
    }

    #[test]
    fn a_slow_link_is_all_that_counts() {
        for workers in [2, 8] {
            let prediction =
                over(&resnet18(5e6), Cluster::over_ethernet(workers, 1, 0.1), &Choices::default());
            let wire = 2.0 * (workers - 1) as f64 / workers as f64 * 44.7e6 * 8.0 / 1e8;
            assert!(prediction.seconds > wire && prediction.seconds < 1.3 * wire, "{prediction:?} {wire}");
        }
    }

    #[test]
    fn sixteen_thousand_workers_are_followed_as_well() {
        let prediction = over(&resnet18(25e6), Cluster::over_ethernet(16_384, 8, 100.0), &Choices::default());
        assert_eq!(prediction.workers, 16_384);
        assert!(prediction.efficiency > 0.05 && prediction.efficiency < 1.0, "{prediction:?}");
    }

    fn seconds(cluster: &ClusterFile, workers: usize, choices: Choices) -> f64 {
        over(&resnet18(4e6), cluster.of(workers).unwrap(), &choices).seconds
    }

    #[test]
    fn rare_and_late_synchronization_wait_less() {
        let link = ClusterFile::of_link("1gbe");
        let of = |sync| seconds(&link, 8, Choices { sync, ..Choices::default() });
        let (every, late) = (of(Sync::EveryStep), of(Sync::Delayed));
        let (eighth, fiftieth) = (of(Sync::Rounds(8)), of(Sync::Rounds(50)));
        assert!(every > late && late > eighth && eighth > fiftieth, "{every} {late} {eighth} {fiftieth}");
        assert!(fiftieth < 1.4 * resnet18(4e6).alone());
    }

    #[test]
    fn servers_with_links_of_their_own_halve_the_wire() {
        let link = ClusterFile::of_link("1gbe");
        let of = |servers| seconds(&ClusterFile { servers, ..link.clone() }, 8, Choices::default());
        let faster = of(0) / of(8);
        assert!(faster > 1.5 && faster < 1.9, "2(N-1)/N = 1.75 on the wire: {faster}");
    }

    #[test]
    fn accumulation_waits_once_for_several_passes() {
        let link = ClusterFile::of_link("1gbe");
        let prediction = |accumulate| {
            let choices = Choices { accumulate, ..Choices::default() };
            over(&resnet18(4e6), link.of(8).unwrap(), &choices)
        };
        let (once, four) = (prediction(1), prediction(4));
        assert!(four.efficiency > 2.5 * once.efficiency, "{once:?} {four:?}");
    }

    #[test]
    fn two_workers_of_one_memory_add_where_they_read() {
        let of = |workers_per_node, workers: usize, choices: Choices| {
            let file = ClusterFile { workers_per_node, ..ClusterFile::of_link("1gbe") };
            over(&resnet18(4e6), file.of(workers).unwrap(), &choices)
        };
        let two = of(4, 2, Choices::default());
        // 44.7 MB at 20 GB/s.
        let added = two.seconds - two.exposed - resnet18(4e6).alone();
        assert!((added - 44.7e6 / 20e9).abs() < 1e-6 && two.algorithm == "deferred", "{two:?}");
        assert!(two.wire < 1e-4, "only the agreement travels: {two:?}");
        let named = Choices { pick: Pick::Named("direct"), ..Choices::default() };
        let accumulating = Choices { accumulate: 2, ..Choices::default() };
        for others in [
            of(4, 4, Choices::default()),
            of(1, 2, Choices::default()),
            of(4, 2, named),
            of(4, 2, accumulating),
        ] {
            assert!(others.algorithm != "deferred" && others.wire > 1e-3, "{others:?}");
        }
        let inside = Some(crate::LinkChoice::Named("nvlink4".into()));
        let accelerators = ClusterFile { workers_per_node: 4, inside, ..ClusterFile::of_link("1gbe") };
        let prediction = over(&resnet18(4e6), accelerators.of(2).unwrap(), &Choices::default());
        assert_ne!(prediction.algorithm, "deferred");
    }

    #[test]
    fn workers_that_share_cores_compute_longer() {
        let shared = |cores| ClusterFile { cores, one_host: true, ..ClusterFile::of_link("loopback") };
        let of = |cores, workers| seconds(&shared(cores), workers, Choices::default());
        assert!(of(Some(2.0), 2) > of(None, 2) + 5e-3, "sockets take a core");
        assert!(of(Some(2.0), 4) > 1.8 * of(Some(2.0), 2));
        assert!((of(Some(2.0), 1) - of(None, 1)).abs() < 1e-12);
    }
}
