//! Asynchronous SGD through servers: start of a job, and a model that shows which pushes each pull lacks.

use std::sync::Arc;

use kolo_comm::{Group, threads};
use kolo_ddp::{Config, Error, Kind, ParamSpec, Replica};

use super::{pass, sgd};

pub const SHARDS: usize = 4;

pub fn config(sync: &str) -> Config {
    Config { shards: Some(SHARDS), sync: sync.parse().unwrap(), ..Config::default() }
}

/// Runs `work` on this number of workers and, after them, servers.
pub fn spawn<R: Send>(workers: usize, servers: usize, work: impl Fn(Group) -> R + Sync) -> Vec<R> {
    threads::spawn(workers + servers, |group| {
        let group = if group.rank().0 < workers { group } else { group.into_server() };
        work(group)
    })
    .unwrap()
}

/// A model whose values show which pushes they contain: worker w raises element (w, c) by 1 in its step c.
pub struct Journal {
    pub replica: Replica,
    pub worker: usize,
    workers: usize,
}

impl Journal {
    pub const STEPS: usize = 40;

    pub fn new(group: Group, sync: &str, workers: usize) -> Self {
        let spec = ParamSpec::new("journal", vec![workers, Self::STEPS], Kind::Parameter { decay: true });
        let config = Config { shards: Some(workers), ..config(sync) };
        let (worker, values) = (group.rank().0, vec![0.0; workers * Self::STEPS]);
        let replica = Replica::new(Arc::new(group), vec![spec], values, &config, sgd()).unwrap();
        Journal { replica, worker, workers }
    }

    /// Runs a step; returns how many steps of each worker are in this one's values then.
    pub fn step(&mut self, step: usize) -> Result<Vec<usize>, Error> {
        if !self.replica.is_server() {
            let mut gradient = vec![0.0; self.workers * Self::STEPS];
            gradient[self.worker * Self::STEPS + step] = -(self.workers as f32);
            pass(&mut self.replica, 1.0, 1.0, [(0, gradient)])?;
        }
        self.replica.step(1.0)?;
        if self.replica.is_server() {
            return Ok(Vec::new());
        }
        let values = self.replica.values()?;
        let rows = values.chunks(Self::STEPS);
        // A worker's pushes come in their order, each once.
        let count = |row: &[f32]| {
            let count = row.iter().take_while(|value| **value == 1.0).count();
            assert!(row[count..].iter().all(|value| *value == 0.0), "{row:?}");
            count
        };
        Ok(rows.map(count).collect())
    }
}
