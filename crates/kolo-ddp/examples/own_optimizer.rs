//! A user's own optimizer, given to a replica like one of the table. It fits a line to points that two
//! workers (threads, here) share, and yields the same bits as one worker alone.
//!
//! `cargo run -p kolo-ddp --example own_optimizer`

use std::sync::Arc;

use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{Optimizer, Update};
use kolo_ddp::{Config, Error, Kind, Layout, ParamSpec, Replica, SpanId};

/// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1): the sign of a
/// momentum, at the learning rate.
#[derive(Default)]
struct Lion {
    learning_rate: f32,
    momentum: Vec<f32>,
}

impl Optimizer for Lion {
    fn init(&mut self, layout: &Layout) {
        self.momentum = vec![0.0; layout.len()];
    }

    fn begin(&mut self, _step: u64, learning_rate: f64) {
        self.learning_rate = learning_rate as f32;
    }

    fn update(&mut self, update: Update<'_>) {
        let Update { range, parameters, gradient, scale, .. } = update;
        for ((p, g), m) in parameters.iter_mut().zip(gradient).zip(&mut self.momentum[range]) {
            let g = g * scale;
            *p -= self.learning_rate * (0.9 * *m + 0.1 * g).signum();
            *m = 0.99 * *m + 0.01 * g;
        }
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        vec![("momentum", &mut self.momentum)]
    }
}

/// Shards of a step, and points of a shard.
const SHARDS: usize = 4;
const POINTS: usize = 8;

/// Fits y = slope·x + shift to points of y = 3x − 1; returns the two and the last loss.
fn train(group: Group) -> Result<([f32; 2], f64), Error> {
    let spec = |name: &str| ParamSpec::new(name, Vec::new(), Kind::Parameter { decay: false });
    let config = Config { shards: Some(SHARDS), ..Config::default() };
    let specs = vec![spec("slope"), spec("shift")];
    let mut replica = Replica::new(Arc::new(group), specs, vec![0.0; 2], &config, Lion::default())?;
    let mut loss = f64::INFINITY;
    for step in 0..400 {
        for shard in replica.shards() {
            let (slope, shift) = (replica.latest(SpanId(0))[0], replica.latest(SpanId(1))[0]);
            let points = (0..POINTS).map(|n| (shard * POINTS + n) as f32 / 16.0 - 1.0);
            let residuals: Vec<[f32; 2]> = points.map(|x| [x, slope * x + shift - (3.0 * x - 1.0)]).collect();
            let sum = |term: fn(&[f32; 2]) -> f32| residuals.iter().map(term).sum::<f32>();
            let mut pass = replica.begin_shard(f64::from(sum(|[_, r]| r * r)), POINTS as f64)?;
            pass.ready(SpanId(1), &[sum(|[_, r]| 2.0 * r)]);
            pass.ready(SpanId(0), &[sum(|[x, r]| 2.0 * r * x)]);
            pass.finish()?;
        }
        loss = replica.step(0.05 * (1.0 - f64::from(step) / 400.0))?.loss;
    }
    let values = replica.values()?;
    Ok(([values[0], values[1]], loss))
}

fn main() -> Result<(), Error> {
    let together = threads::spawn(2, train)?;
    for (rank, result) in together.into_iter().enumerate() {
        let ([slope, shift], loss) = result?;
        println!("rank {rank}: y = {slope} x + {shift}, loss {loss}");
        assert!(loss < 1e-4, "it should have come to y = 3 x - 1");
        assert_eq!(train(Group::alone())?, ([slope, shift], loss), "one worker alone ends in the same bits");
    }
    Ok(())
}
