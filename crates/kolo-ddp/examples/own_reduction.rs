//! A user's own reduction: the majority vote of the shards' signs, which trains a line with the same bits on
//! one worker and on three.
//!
//! `cargo run -p kolo-ddp --example own_reduction`

use std::sync::Arc;

use kolo_comm::{Buffer, Collective, Group, Op, Pending, Timing, threads};
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::reduction::{Context, FinishedShard, ReadyStep, Reducer, Reduction};
use kolo_ddp::{Assignment, Config, Error, Kind, ParamSpec, Replica, SpanId};

/// Majority vote of the shards' signs (Bernstein et al. 2018, "signSGD", algorithm 3): sums of integers,
/// which no order changes.
struct Majority {
    gradient: Vec<f32>,
    votes: Option<Buffer<f32>>,
    pending: Option<Pending<Buffer<f32>>>,
}

/// Makes one for each bucket.
#[derive(Debug)]
pub struct MajorityVote;

impl Reducer for MajorityVote {
    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let votes = Some(context.group.alloc(context.bucket.len)?);
        Ok(Box::new(Majority { gradient: vec![0.0; context.bucket.len], votes, pending: None }))
    }
}

impl Reduction for Majority {
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool) {
        let target = self.gradient[offset..].iter_mut();
        target.zip(gradient).for_each(|(sum, g)| *sum = if first { *g } else { *sum + g });
    }

    fn add_nothing(&mut self, offset: usize, len: usize) {
        self.gradient[offset..offset + len].fill(0.0);
    }

    fn end_shard(&mut self, _: FinishedShard) {
        let votes = self.votes.as_mut().unwrap().iter_mut();
        votes.zip(&self.gradient).for_each(|(votes, g)| *votes += g.total_cmp(&0.0) as i8 as f32);
    }

    fn start(&mut self, group: Option<&Group>, _: &Assignment, _: &ReadyStep) {
        if let Some(group) = group {
            self.pending = Some(group.start(Collective::AllReduce(Op::Sum), self.votes.take().unwrap()));
        }
    }

    fn is_over(&mut self) -> bool {
        self.pending.as_mut().is_some_and(Pending::is_over)
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        if let Some(pending) = self.pending.take() {
            let (votes, timing) = pending.wait_timed()?;
            self.votes = Some(votes);
            let votes = self.votes.as_mut().ok_or(Error::Lost)?;
            votes.iter_mut().for_each(|votes| *votes = votes.total_cmp(&0.0) as i8 as f32);
            return Ok(Some(timing));
        }
        Ok(None)
    }

    fn result(&mut self) -> &mut [f32] {
        self.votes.as_mut().unwrap()
    }

    fn reset(&mut self) {
        self.votes.as_mut().unwrap().fill(0.0);
    }
}

/// Fits 3x − 1 with six shards a step; returns slope and shift.
fn train(group: Group) -> Result<[f32; 2], Error> {
    let spec = |name: &str| ParamSpec::new(name, Vec::new(), Kind::Parameter { decay: false });
    let config = Config { shards: Some(6), reduction: Arc::new(MajorityVote), ..Config::default() };
    let sgd = optimizer::named("sgd", &Settings::default())?;
    let specs = vec![spec("slope"), spec("shift")];
    let mut replica = Replica::new(Arc::new(group), specs, vec![0.0; 2], &config, sgd)?;
    for step in 0..400 {
        for shard in replica.shards() {
            let (slope, shift) = (replica.latest(SpanId(0))[0], replica.latest(SpanId(1))[0]);
            let x = (step * 6 + shard) as f32 * 0.37 % 2.0 - 1.0;
            let residual = slope * x + shift - (3.0 * x - 1.0);
            let mut pass = replica.begin_shard(f64::from(residual * residual), 1.0)?;
            pass.ready(SpanId(1), &[residual]);
            pass.ready(SpanId(0), &[residual * x]);
            pass.finish()?;
        }
        // The vote is ±1, and divided by the six samples of a step.
        replica.step(0.3 * (1.0 - step as f64 / 400.0))?;
    }
    let values = replica.values()?;
    Ok([values[0], values[1]])
}

/// Trains with one worker and with three.
pub fn main() -> Result<(), Error> {
    let (alone, together) = (train(Group::alone())?, threads::spawn(3, train)?);
    println!("{:.3}·x {:+.3}", alone[0], alone[1]);
    for values in together {
        assert_eq!(values?, alone, "the same bits on any number of workers");
    }
    assert!((alone[0] - 3.0).abs() < 0.1 && (alone[1] + 1.0).abs() < 0.1, "{alone:?}");
    Ok(())
}
