//! The list of what a job keeps is complete: a worker that knows nothing else goes on in the same bits, from
//! a checkpoint, as a newcomer, and from a copy of what a dead worker had.

use std::sync::Arc;

use crate::common::checkpoints::at;
use crate::common::smooth::Smooth;
use crate::common::{Combination, bits, combinations, replica_with, run_shard};
use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer;
use kolo_ddp::{Config, Error, LossScaling, Replica};

const SHARDS: usize = 4;
/// Steps before a worker has to go on from the list, and steps of a run.
const CUT: u64 = 4;
const STEPS: u64 = 8;

/// Ways to synchronize, each with its islands; post-local is cut before its first round.
const MODES: [(&str, Option<usize>); 5] = [
    ("every-step", None),
    ("delayed:1", None),
    ("local:H=2", Some(4)),
    ("diloco:H=2", Some(2)),
    ("post-local:H=2,T=6", Some(2)),
];

fn config((sync, islands): (&str, Option<usize>), (.., reduction): &Combination, elastic: bool) -> Config {
    let scaling = LossScaling { initial: 64.0, growth_interval: 3, ..LossScaling::default() };
    Config {
        shards: Some(SHARDS),
        sync: sync.parse().unwrap(),
        islands,
        reduction: reduction.clone(),
        loss_scaling: (sync != "delayed:1").then_some(scaling),
        noise_scale: sync == "every-step" && reduction.is_sum(),
        backup_every: 2,
        elastic,
        ..Config::default()
    }
}

/// Creates a replica with a transform of the program's own, where there can be one.
fn new(group: Group, config: &Config, (optimizer, settings, _): &Combination) -> Result<Replica, Error> {
    let optimizer = optimizer::named(optimizer.name, settings).unwrap();
    let mut replica = replica_with(Arc::new(group), config, optimizer)?;
    if config.islands.is_none() {
        replica.add_transform(Smooth::default());
    }
    Ok(replica)
}

fn train(replica: &mut Replica, to: u64) {
    while replica.steps() < to {
        let step = replica.steps() as usize;
        for shard in replica.shards() {
            run_shard(replica, &[step * SHARDS + shard, 3 * shard]);
        }
        if step % 2 == 1 {
            replica.end_round();
        }
        replica.step(0.05).unwrap();
    }
}

#[test]
fn state_that_is_not_in_the_list_would_change_the_bits() {
    let combinations = combinations();
    for mode in MODES {
        let mut tried = 0;
        for combination in &combinations {
            let case = format!("{mode:?}, {} with {}", combination.0.name, combination.2.name());
            let config = config(mode, combination, false);
            // Some ways exclude some reductions.
            let Ok(mut whole) = new(Group::alone(), &config, combination) else { continue };
            train(&mut whole, CUT);
            let folder = tempfile::tempdir().unwrap();
            let path = checkpoint::save(folder.path(), &mut whole, &at(CUT)).unwrap();
            train(&mut whole, STEPS);
            let expected = bits(&mut whole);

            let mut resumed = new(Group::alone(), &config, combination).unwrap();
            train(&mut resumed, 2);
            checkpoint::load(&path, &mut resumed).unwrap();
            train(&mut resumed, STEPS);
            assert!(bits(&mut resumed) == expected, "{case}: from a checkpoint");

            let elastic = Config { elastic: true, ..config };
            let ends = threads::spawn(2, |group| {
                let mut replica = if group.rank().0 == 0 {
                    let mut first = new(Group::alone(), &elastic, combination).unwrap();
                    train(&mut first, CUT);
                    first.regroup(Arc::new(group)).unwrap();
                    first
                } else {
                    new(group, &elastic, combination).unwrap()
                };
                train(&mut replica, CUT + 2);
                if replica.group().rank().0 == 0 {
                    return None;
                }
                replica.regroup(Arc::new(Group::alone())).unwrap();
                train(&mut replica, STEPS);
                Some(bits(&mut replica))
            });
            assert!(ends.unwrap()[1].as_ref() == Some(&expected), "{case}: a newcomer that goes on alone");
            tried += 1;
        }
        assert!(tried >= optimizer::OPTIMIZERS.len(), "{mode:?}: {tried}");
    }
}

/// Programs of earlier versions have written these names, and read them, in this order.
#[test]
fn the_names_in_a_checkpoint_do_not_depend_on_who_had_the_state() {
    let find = |optimizer, reduction: &str| {
        let find =
            |combination: &&Combination| combination.0.name == optimizer && combination.2.name() == reduction;
        combinations().iter().find(find).unwrap().clone()
    };
    let names = |mode, combination: Combination, set| -> Vec<String> {
        let config = Config { shards: Some(2), loss_scaling: None, ..config(mode, &combination, false) };
        let folder = tempfile::tempdir().unwrap();
        threads::spawn(2, |group| {
            let mut replica = new(group, &config, &combination).unwrap();
            let shard = replica.shards().start;
            (0..2).for_each(|step| {
                run_shard(&mut replica, &[2 * step + shard]);
                replica.step(0.05).unwrap();
            });
            replica.gather_residuals().unwrap();
            if shard == 0 {
                checkpoint::save(folder.path(), &mut replica, &at(2)).unwrap();
            }
        })
        .unwrap();
        let reader = checkpoint::Reader::open(&checkpoint::path(folder.path(), 2)).unwrap();
        let tensors = reader.tensors(set).into_iter();
        tensors.filter_map(|(name, ..)| Some(name.strip_suffix("/first")?.to_string())).collect()
    };
    assert_eq!(
        names(MODES[0], find("sgd", "powersgd"), checkpoint::Set::Residuals),
        ["shard0/mean_residual", "shard1/mean_residual", "common/right_factor"]
    );
    let adam = ["first_moment", "second_moment"];
    let expected: Vec<String> =
        [0, 1].iter().flat_map(|n| adam.map(|name| format!("island{n}/{name}"))).collect();
    let found = names(MODES[3], find("adamw", "sum"), checkpoint::Set::Optimizer);
    assert_eq!(found[0], "outer/velocity");
    assert_eq!(found[1..], expected);
}
