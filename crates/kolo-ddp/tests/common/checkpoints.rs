//! Checkpoints of a small replica, good and damaged.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kolo_comm::Group;
use kolo_ddp::checkpoint::{self, Position};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::{Config, Replica};

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

/// A folder with checkpoints after steps 1, 2 and 3, and the replica after step 3.
pub fn three(folder: &Path) -> Replica {
    let mut replica = adamw();
    for n in 1..=3 {
        step(&mut replica, n);
        checkpoint::save(folder, &mut replica, &at(n as u64)).unwrap();
    }
    replica
}

/// Turns a bit of a file.
pub fn flip(path: &Path, bit: usize) {
    let mut data = fs::read(path).unwrap();
    data[bit / 8] ^= 1 << (bit % 8);
    fs::write(path, data).unwrap();
}
