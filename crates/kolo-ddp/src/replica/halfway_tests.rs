//! Tests of a step that fails after some of its updates, and is done again.

use std::sync::Arc;

use kolo_comm::Group;
use kolo_optim::table::Entry;
use kolo_optim::{Kind, OPTIMIZERS, Optimizer, ParamSpec, Settings, SpanId};
use kolo_reduction::{BLOCK, BucketCaps};
use kolo_sync::{Config, Undo};

use super::handle::Replica;

/// Runs a step of two shards whose gradients are multiples of the values. Every second step, such as the
/// eighth, uses the last tensor twice, which the step before has not shown.
fn step(replica: &mut Replica) {
    let number = replica.steps() + 1;
    let values = replica.values().unwrap().to_vec();
    let layout = replica.layout().clone();
    for shard in replica.shards() {
        let mut pass = replica.begin_shard(1.0, 2.0).unwrap();
        for (n, span) in layout.spans().iter().enumerate().rev() {
            let times = |factor: f32| values[span.range()].iter().map(|x| x * factor).collect::<Vec<_>>();
            pass.ready(SpanId(n), &times(number as f32 + shard as f32 / 3.0));
            if n + 1 == layout.spans().len() && number.is_multiple_of(2) {
                pass.ready(SpanId(n), &times(0.7 + shard as f32 / 7.0));
            }
        }
        pass.finish().unwrap();
    }
    replica.step(0.05).unwrap();
}

/// Returns the bits of the values after ten steps of a model with a tensor that travels in three
/// buckets. With `fails`, a reduction of the eighth step fails after the next forward pass has read that
/// many of the four tensors.
fn train(optimizer: &Entry<dyn Optimizer>, fails: Option<usize>) -> Vec<u32> {
    const LENS: [usize; 4] = [10, 2 * BLOCK + 3, 300, 20];
    let spec = |(n, len): (usize, &usize)| {
        ParamSpec::new(
            n.to_string(),
            vec![*len],
            if n == 3 { Kind::Statistic } else { Kind::Parameter { decay: n == 1 } },
        )
    };
    let specs = LENS.iter().enumerate().map(spec).collect();
    let values = (0..LENS.iter().sum()).map(|i: usize| (i as f32 * 0.37).sin()).collect();
    let config = Config { shards: Some(2), caps: Some(BucketCaps::of_mib(0.01)), ..Config::default() };
    let optimizer = optimizer.build(&Settings::default()).unwrap();
    let group = || Arc::new(Group::alone());
    let mut replica = Replica::new(group(), specs, values, &config, optimizer).unwrap();
    replica.core.weights.undo = Some(Undo::new(replica.layout()));
    (0..8).for_each(|_| step(&mut replica));
    if let Some(asked) = fails {
        // The forward pass still has the tensors that it has read.
        let loans: Vec<_> = (0..asked).map(|n| replica.lend(SpanId(n)).unwrap()).collect();
        let read: Vec<Vec<f32>> = loans.iter().map(|loan| loan.values().to_vec()).collect();
        // What a replica does if missing updates can no longer be applied.
        let core = &mut replica.core;
        if core.step.give_up() {
            core.progress.steps -= 1;
            core.weights.undo.as_mut().unwrap().revert(&mut core.weights.values);
        }
        // The last two tensors share a bucket.
        assert_eq!(replica.is_halfway(), asked == 1 || asked == 2, "{asked} tensors");
        replica.join(group()).unwrap();
        step(&mut replica);
        assert!(loans.iter().zip(&read).all(|(loan, read)| loan.values() == read), "{asked} tensors");
    }
    while replica.steps() < 10 {
        step(&mut replica);
    }
    replica.values().unwrap().iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_step_that_fails_halfway_does_not_change_the_bits() {
    for optimizer in OPTIMIZERS {
        let expected = train(optimizer, None);
        for asked in 0..=4 {
            assert!(train(optimizer, Some(asked)) == expected, "{optimizer:?}, {asked} tensors");
        }
    }
}
