//! A parameter that is used several times in a shard: a resumed run ends in the bits of one that has never
//! stopped.

use std::ops::Range;
use std::sync::Arc;

use crate::common::checkpoints::cut_and_resume;
use crate::common::{WIDTH, bits, noise, pass};
use kolo_comm::Group;
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Config, Kind, ParamSpec, Replica};

const STEPS: u64 = 60;
const CUT: u64 = 20;

/// Number of a shard's uses of each parameter.
const USES: [usize; 3] = [1, 2, 5];

fn replica(group: Group, shards: usize) -> Replica {
    let spec = |n: usize| ParamSpec::new(format!("p{n}"), vec![WIDTH], Kind::Parameter { decay: true });
    let values = (0..USES.len() * WIDTH).map(|i| noise(3, i)).collect();
    let config = Config { shards: Some(shards), ..Config::default() };
    let adamw = optimizer::named("adamw", &Settings::default().with("weight_decay", 0.1)).unwrap();
    Replica::new(Arc::new(group), (0..USES.len()).map(spec).collect(), values, &config, adamw).unwrap()
}

/// Each use yields a gradient of its own, of very different sizes, so that the order of the sum shows.
fn train(replica: &mut Replica, steps: Range<u64>) {
    for step in steps {
        let values = replica.values().unwrap().to_vec();
        for shard in replica.shards() {
            let gradient = |parameter: usize, index: usize| {
                let seed = (step as usize * 16 + shard) * 8 + index;
                let of = |i| values[parameter * WIDTH + i] * noise(seed, i) * 10f32.powi(index as i32);
                (parameter, (0..WIDTH).map(of).collect::<Vec<f32>>())
            };
            let uses = USES.into_iter().enumerate().rev();
            let gradients = uses.flat_map(|(n, uses)| (0..uses).map(move |index| (n, index)));
            let gradients = gradients.map(|(n, index)| gradient(n, index));
            pass(replica, 1.0, 1.0 + shard as f64, gradients).unwrap();
        }
        replica.step(0.01).unwrap();
    }
}

#[test]
fn a_resumed_run_ends_in_the_bits_of_an_uninterrupted_one() {
    for shards in [2, 3, 4, 8] {
        let new = |group| replica(group, shards);
        let mut whole = new(Group::alone());
        train(&mut whole, 0..STEPS);
        let expected = bits(&mut whole);
        for world in [1, 2, 3, 5] {
            let before = |replica: &mut Replica| train(replica, 0..CUT);
            for resumed in cut_and_resume(CUT, [1, world], new, before, |replica| {
                train(replica, CUT..STEPS);
                bits(replica)
            }) {
                assert!(resumed == expected, "{shards} shards on {world} ranks");
            }
        }
    }
}
