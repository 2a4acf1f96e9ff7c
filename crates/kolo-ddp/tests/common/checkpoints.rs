//! Checkpoints of a small replica, good and damaged.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint::{self, Position};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::{Config, Replica};
use tempfile::TempDir;

use super::{replica, run_shard};

pub fn at(step: u64) -> Position {
    Position { step, epoch: 1, step_in_epoch: 2, notes: r#"{"a": 1}"#.parse().unwrap() }
}

pub fn adamw() -> Replica {
    replica(Arc::new(Group::alone()), &Config::default(), "adamw", Settings::default())
}

pub fn step(replica: &mut Replica, n: usize) {
    run_shard(replica, &[n, n + 1]);
    replica.step(0.05).unwrap();
}

/// Writes checkpoints after steps 1, 2 and 3; returns the replica after step 3.
pub fn three(folder: &Path) -> Replica {
    let mut replica = adamw();
    for n in 1..=3 {
        step(&mut replica, n);
        checkpoint::save(folder, &mut replica, &at(n as u64)).unwrap();
    }
    replica
}

pub fn flip(path: &Path, bit: usize) {
    let mut data = fs::read(path).unwrap();
    data[bit / 8] ^= 1 << (bit % 8);
    fs::write(path, data).unwrap();
}

/// Runs `before` on a job of `writers` ranks; returns a folder with its checkpoint after `cut` steps.
pub fn saved(
    cut: u64,
    writers: usize,
    replica: impl Fn(Group) -> Replica + Sync,
    before: impl Fn(&mut Replica) + Sync,
) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    threads::spawn(writers, |group| {
        let mut replica = replica(group);
        before(&mut replica);
        checkpoint::save_together(folder.path(), &mut replica, &at(cut)).unwrap();
    })
    .unwrap();
    folder
}

/// Runs `before` on a job of `writers` ranks, which leaves a checkpoint after `cut` steps; then a job of
/// `readers` ranks continues from it. Returns the results of `after` on these.
pub fn cut_and_resume<R: Send>(
    cut: u64,
    [writers, readers]: [usize; 2],
    replica: impl Fn(Group) -> Replica + Sync,
    before: impl Fn(&mut Replica) + Sync,
    after: impl Fn(&mut Replica) -> R + Sync,
) -> Vec<R> {
    let folder = saved(cut, writers, &replica, before);
    threads::spawn(readers, |group| {
        let mut replica = replica(group);
        checkpoint::resume(folder.path(), &mut replica).unwrap().unwrap();
        assert_eq!(replica.steps(), cut);
        after(&mut replica)
    })
    .unwrap()
}
