//! Jobs whose updates are one step late, stopped anywhere: a resumed job ends in the bits of the undisturbed
//! one. `sync_values.rs` has the weights of a plain loop, and `delayed.rs` those of jobs that are not
//! stopped.

use std::path::Path;
use std::sync::Arc;

use crate::common::checkpoints::at;
use crate::common::{Combination, bits, clip, combinations, replica, run_shard};
use kolo_comm::{Group, threads};
use kolo_ddp::{Change, Config, LastStep, Replica, checkpoint};
use kolo_testing::selected;

const SHARDS: usize = 4;
const STEPS: u64 = 12;
/// Number of steps after which all updates are applied.
const EVERY: u64 = 7;

fn config(combination: &Combination) -> Config {
    Config {
        shards: Some(SHARDS),
        sync: "delayed:1".parse().unwrap(),
        backup_every: EVERY,
        reduction: combination.2.clone(),
        transforms: clip(2.0),
        ..Config::default()
    }
}

fn new(group: Group, config: &Config, (optimizer, settings, _): &Combination) -> Replica {
    replica(Arc::new(group), config, optimizer.name, settings.clone())
}

/// Combinations that permit updates that are one step late.
fn possible() -> impl Iterator<Item = Combination> {
    combinations().into_iter().filter(|(.., reduction)| !reduction.keeps_state())
}

/// Runs a step; shards have uneven numbers of samples, and some have none.
fn step(replica: &mut Replica) -> (Vec<LastStep>, Change) {
    let number = replica.steps() as usize;
    for shard in replica.shards() {
        let samples: Vec<usize> = (0..(number + shard) % 3).map(|n| 5 * number + shard + n).collect();
        run_shard(replica, &samples);
    }
    let report = replica.step(0.05 / (1.0 + 0.1 * number as f64)).unwrap();
    (report.known, report.change)
}

/// Trains to the end of the run.
fn finish(replica: &mut Replica) -> (Vec<u32>, Vec<LastStep>) {
    let mut known = Vec::new();
    while replica.steps() < STEPS {
        if replica.steps() + 1 == STEPS {
            replica.end_round();
        }
        known.extend(step(replica).0);
    }
    (bits(replica), known)
}

/// Trains until all ranks have left, which they are asked to before step `asked`.
fn stop(replica: &mut Replica, asked: u64) -> Vec<LastStep> {
    let mut known = Vec::new();
    loop {
        if replica.steps() == asked {
            replica.leave();
        }
        let (more, change) = step(replica);
        known.extend(more);
        if change == Change::AllLeft {
            assert!(replica.is_synchronized());
            return known;
        }
        assert!(replica.steps() < asked + 2, "nobody leaves");
    }
}

#[test]
fn a_job_that_is_stopped_anywhere_goes_on_in_the_same_bits() {
    for (n, combination) in possible().enumerate() {
        let all = config(&combination);
        let expected = finish(&mut new(Group::alone(), &all, &combination));
        // Some stops come where all updates are applied anyway, and some one step after a resume.
        let mut stops: [&[(u64, usize)]; 5] =
            [&[(0, 2)], &[(3, 3), (5, 1)], &[(2, 1), (4, 4), (8, 2)], &[(5, 1), (7, 2)], &[(9, 5)]];
        stops.rotate_left(n % 5);
        for asked in selected(2, stops) {
            let folder = tempfile::tempdir().unwrap();
            let mut known = Vec::new();
            for (asked, world) in asked {
                let told = threads::spawn(*world, |group| {
                    let mut replica = new(group, &all, &combination);
                    checkpoint::resume(folder.path(), &mut replica).unwrap();
                    let known = stop(&mut replica, *asked);
                    let position = at(replica.steps());
                    checkpoint::save_together(folder.path(), &mut replica, &position).unwrap();
                    known
                });
                known.extend(told.unwrap().remove(0));
            }
            let ends = threads::spawn(3, |group| {
                let mut replica = new(group, &all, &combination);
                checkpoint::resume(folder.path(), &mut replica).unwrap().unwrap();
                finish(&mut replica)
            });
            for (bits, rest) in ends.unwrap() {
                let case = format!("{} with {}, {asked:?}", combination.0.name, combination.2.name());
                assert!(bits == expected.0, "{case}");
                assert_eq!([&known[..], &rest].concat(), expected.1, "{case}");
            }
        }
    }
}

/// The model in the checkpoint of a stopped job has all updates, and a job that was resumed can be saved
/// before its first step: in the same files.
#[test]
fn the_checkpoint_of_a_stopped_job_holds_the_complete_model() {
    let combination = possible().next().unwrap();
    let all = config(&combination);
    let mut stopped = new(Group::alone(), &all, &combination);
    stop(&mut stopped, 2);
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let position = at(stopped.steps());
    let path = checkpoint::save(folders[0].path(), &mut stopped, &position).unwrap();
    let read = |path: &Path| {
        let reader = checkpoint::Reader::open(path).unwrap();
        let mut values = vec![0.0; stopped.layout().len()];
        reader.read(checkpoint::Set::Weights, "", stopped.layout(), 0, &mut values).unwrap();
        values.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
    };
    let complete = read(&path);
    let mut resumed = new(Group::alone(), &all, &combination);
    checkpoint::load(&path, &mut resumed).unwrap();
    assert!(bits(&mut resumed) != complete, "the next passes lack the last update");
    let again = checkpoint::save(folders[1].path(), &mut resumed, &position).unwrap();
    assert_eq!(read(&again), complete);
    checkpoint::load(&again, &mut resumed).unwrap();
    let expected = finish(&mut new(Group::alone(), &all, &combination));
    assert!(finish(&mut resumed).0 == expected.0);
    assert_eq!(bits(&mut stopped), complete);
}

/// An elastic job goes back to the checkpoint that it was resumed from, before or after its first step.
#[test]
fn workers_that_die_and_join_right_after_a_resume_do_not_change_the_bits() {
    let combination = possible().next().unwrap();
    let all = Config { elastic: true, ..config(&combination) };
    let expected = finish(&mut new(Group::alone(), &all, &combination));
    let folder = tempfile::tempdir().unwrap();
    let mut stopped = new(Group::alone(), &config(&combination), &combination);
    stop(&mut stopped, 2);
    let position = at(stopped.steps());
    checkpoint::save(folder.path(), &mut stopped, &position).unwrap();
    for steps in 0..3 {
        let ends = threads::spawn(2, |group| {
            let mut replica = if group.rank().0 == 0 {
                let mut first = new(Group::alone(), &all, &combination);
                checkpoint::resume(folder.path(), &mut first).unwrap().unwrap();
                (0..steps).for_each(|_| drop(step(&mut first)));
                first.regroup(Arc::new(group)).unwrap();
                first
            } else {
                new(group, &all, &combination)
            };
            assert_eq!(replica.steps(), position.step);
            step(&mut replica);
            replica.regroup(Arc::new(Group::alone())).unwrap();
            finish(&mut replica).0
        });
        assert!(ends.unwrap().iter().all(|bits| *bits == expected.0), "after {steps} steps");
    }
}
