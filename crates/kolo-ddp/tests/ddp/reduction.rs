//! A user's own reduction, and refused settings.

#[path = "../../examples/own_reduction.rs"]
mod own_reduction;

use std::sync::Arc;

use crate::common::{WIDTH, replica, run_shard};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::reduction::{self, REDUCTIONS};
use kolo_ddp::{BucketCaps, Config, Warning};
use own_reduction::MajorityVote;

#[test]
fn a_reduction_of_the_users_own_trains_in_the_same_bits_on_any_number_of_ranks() {
    let train = |group: Group, caps| {
        let config = Config {
            shards: Some(5),
            caps: Some(caps),
            reduction: Arc::new(MajorityVote),
            ..Config::default()
        };
        let mut replica = replica(Arc::new(group), &config, "sgd", Settings::default());
        let before = replica.values().unwrap().to_vec();
        for step in 0..8 {
            for shard in replica.shards() {
                run_shard(&mut replica, &[step * 5 + shard]);
            }
            replica.step(0.5).unwrap();
        }
        let moved = replica.values().unwrap().iter().zip(before).map(|(after, before)| after - before);
        moved.collect::<Vec<f32>>()
    };
    let alone = train(Group::alone(), BucketCaps::of_mib(25.0));
    // Each step moves a value by a tenth, the rate over five samples, or not at all.
    let first = &alone[..WIDTH];
    assert!(first.iter().all(|moved| (moved * 10.0 - (moved * 10.0).round()).abs() < 1e-3));
    assert!(first.iter().any(|moved| *moved != 0.0));
    for world in 2..=4 {
        for moved in threads::spawn(world, |group| train(group, BucketCaps::of_mib(0.002))).unwrap() {
            assert!(moved == alone, "{world} ranks");
        }
    }
}

#[test]
fn the_example_trains() {
    own_reduction::main().unwrap();
}

#[test]
fn names_are_unique_and_unknown_ones_are_refused_with_the_known_ones() {
    for entry in REDUCTIONS {
        let made = reduction::named(entry.name, &Settings::default()).unwrap();
        assert_eq!(
            (made.name(), made.to_string()),
            (entry.name, reduction::parse(&made.to_string()).unwrap().to_string())
        );
        assert_eq!(REDUCTIONS.iter().filter(|other| other.name == entry.name).count(), 1);
        assert!(!entry.about.is_empty());
    }
    let error = reduction::find("mean").unwrap_err().to_string();
    assert!(error.contains("`mean`") && error.contains(REDUCTIONS[0].name), "{error}");
}

/// Each of two ranks holds the reduction's state of all shards; of four ranks none does.
#[test]
fn a_job_goes_back_to_the_last_copy_and_warns_without_one() {
    for (world, is_lost) in [(2, false), (4, true)] {
        let outcomes = threads::spawn(world, |group| {
            let reduction = reduction::parse("ef-sign:dense_below=0").unwrap();
            let (shards, backup_every) = (Some(4), 2);
            let config = Config { shards, backup_every, reduction, elastic: true, ..Config::default() };
            let mut replica = replica(Arc::new(group), &config, "sgd", Settings::default());
            for step in 0..5 {
                for shard in replica.shards() {
                    run_shard(&mut replica, &[step * 4 + shard]);
                }
                replica.step(0.05).unwrap();
            }
            replica.regroup(Arc::new(Group::alone())).unwrap();
            let warnings = replica.take_warnings();
            (
                replica.steps(),
                warnings.iter().any(|warning| matches!(warning, Warning::ShardStateLost { .. })),
            )
        });
        assert_eq!(outcomes.unwrap(), vec![(if is_lost { 5 } else { 4 }, is_lost); world]);
    }
}
