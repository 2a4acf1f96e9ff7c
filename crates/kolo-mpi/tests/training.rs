//! Training over MPI: the weights are one worker's, up to rounding. [`kolo_testing::mpirun`] runs the tests.

#[path = "../../kolo-ddp/tests/common/mod.rs"]
mod common;

use std::process::ExitCode;
use std::sync::Arc;

use common::{WIDTH, clip, lively, replica, run_shard};
use kolo_comm::{Group, Options};
use kolo_ddp::optimizer::{OPTIMIZERS, Optimizer};
use kolo_ddp::table::Entry;
use kolo_ddp::{BucketCaps, Config, Sampler};
use kolo_testing::mpirun::{self, Case};

const SAMPLES: usize = 50;
const SHARDS: usize = 4;

const CASES: &[Case] = &[Case::new("training", &[2, 3, 4, 5], training)];

fn main() -> ExitCode {
    mpirun::main(CASES, &kolo_mpi::library().unwrap())
}

/// Trains for two epochs and returns the values; buckets are small, so several are in flight at once.
fn train(group: Group, optimizer: &Entry<dyn Optimizer>) -> Vec<f32> {
    let caps = BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH };
    let config =
        Config { shards: Some(SHARDS), caps: Some(caps), transforms: clip(1.5), ..Config::default() };
    let mut replica = replica(Arc::new(group), &config, optimizer.name, lively(optimizer));
    let sampler = Sampler::new(SAMPLES, 3, SHARDS, 1).unwrap();
    for epoch in 0..2 {
        let order = sampler.epoch(epoch);
        for step in 0..sampler.steps() {
            for shard in replica.shards() {
                run_shard(&mut replica, &order.shard(step, shard));
            }
            replica.step(0.05).unwrap();
        }
    }
    replica.values().unwrap().to_vec()
}

fn training() {
    // MPI runs as long as any group exists.
    let options = Options::from_env_with(&[&kolo_mpi::BACKEND]).unwrap();
    let _job = Group::of_job(&options).unwrap();
    for optimizer in OPTIMIZERS {
        let group = Group::of_job(&options).unwrap();
        assert_eq!(group.transport(), "mpi");
        let (together, alone) = (train(group, optimizer), train(Group::alone(), optimizer));
        let distance: f64 =
            together.iter().zip(&alone).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
        let size: f64 = alone.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        assert!(distance <= 1e-5 * size, "{}: {}", optimizer.name, distance / size);
    }
}
