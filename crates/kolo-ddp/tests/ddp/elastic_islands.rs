//! Workers of a job with islands, or with updates that are one step late, that join and leave as planned, or
//! whose death loses state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use crate::common::{NAMES, Scripted, WIDTH, bits, noise, replica, run_shard, scripted, specs};
use kolo_comm::{Group, Options, threads};
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::reduction;
use kolo_ddp::{Change, Config, Replica, Warning};

const SHARDS: usize = 4;
const STEPS: u64 = 16;
/// An optimizer with state.
const OPTIMIZER: &str = "adam";

fn config(sync: &str) -> Config {
    let (shards, sync) = (Some(SHARDS), sync.parse().unwrap());
    Config { shards, sync, elastic: true, backup_every: 4, ..Config::default() }
}

/// Runs a step of all of this rank's shards; returns its change.
fn step(replica: &mut Replica) -> Change {
    let step = replica.steps() as usize;
    if step as u64 + 1 == STEPS {
        replica.end_round();
    }
    for shard in replica.shards() {
        run_shard(replica, &[step * SHARDS + shard, 7 * shard]);
    }
    replica.step(0.05).unwrap().change
}

/// Returns the bits of one undisturbed rank.
fn alone(config: &Config) -> Vec<u32> {
    let mut replica = replica(Arc::new(Group::alone()), config, OPTIMIZER, Settings::default());
    while replica.steps() < STEPS {
        step(&mut replica);
    }
    bits(&mut replica)
}

fn member(groups: Receiver<Group>, wanted: Arc<AtomicBool>, config: &Config) -> Replica {
    let values: Vec<f32> = (0..NAMES.len() * WIDTH).map(|i| noise(0, i) * 0.5).collect();
    let optimizer = optimizer::named(OPTIMIZER, &Settings::default()).unwrap();
    Replica::elastic(Scripted::new(groups, wanted), &specs(), &values, config, optimizer).unwrap()
}

/// Two workers train. In step `comes` a third one requests to join, and in step `leaves` the first one to
/// leave. Returns the numbers of steps after which they did, and the bits of the others.
fn planned(config: &Config, comes: u64, leaves: u64) -> ([u64; 2], Vec<Vec<u32>>) {
    let mut groups = scripted(3, &[&[0, 1], &[0, 1, 2], &[1, 2]]);
    let wanted: Vec<Arc<AtomicBool>> = (0..3).map(|_| Arc::default()).collect();
    let run = |groups, number: usize| {
        let mut replica = member(groups, wanted[number].clone(), config);
        let (joined, mut left) = (replica.steps(), None);
        while replica.steps() < STEPS && left.is_none() {
            match (number, replica.steps()) {
                (1, steps) if steps == comes => wanted[1].store(true, Ordering::SeqCst),
                (0, steps) if steps == leaves => replica.leave(),
                _ => {}
            }
            if step(&mut replica) == Change::Left {
                left = Some(replica.steps());
            }
        }
        (joined, left, bits(&mut replica))
    };
    std::thread::scope(|scope| {
        let (run, newcomer) = (&run, groups.pop().unwrap());
        let mut members: Vec<_> = groups
            .drain(..)
            .enumerate()
            .map(|(number, groups)| scope.spawn(move || run(groups, number)))
            .collect();
        members.push(scope.spawn(move || run(newcomer, 2)));
        let mut ends = members.into_iter().map(|member| member.join().unwrap());
        let (_, left, _) = ends.next().unwrap();
        let stayed: Vec<(u64, Option<u64>, Vec<u32>)> = ends.collect();
        let joined = stayed[1].0;
        ([joined, left.unwrap()], stayed.into_iter().map(|(.., bits)| bits).collect())
    })
}

#[test]
fn members_come_and_leave_at_the_end_of_a_round() {
    for (sync, expected) in [
        ("local:H=4", [8, 12]),
        ("diloco:H=4", [8, 12]),
        ("local:H=4,restart_inner", [8, 12]),
        // Before the first round after any step.
        ("post-local:H=4,T=16", [6, 10]),
        ("post-local:H=4,T=8", [6, 12]),
        // After a step that makes all updates.
        ("delayed:1", [8, 12]),
    ] {
        let config = config(sync);
        let (steps, ends) = planned(&config, 5, 9);
        assert_eq!(steps, expected, "{sync}");
        let expected = alone(&config);
        assert!(ends.iter().all(|end| *end == expected), "{sync}");
    }
}

/// Two neighbors of four leave after the same step, and none joins.
#[test]
fn a_rank_that_leaves_sends_its_state_to_one_that_stays() {
    let residuals = || {
        let reduction = reduction::parse("ef-sign:dense_below=0").unwrap();
        Config { reduction, ..config("every-step") }
    };
    for config in [config("diloco:H=4"), residuals()] {
        let groups = scripted(4, &[&[0, 1, 2, 3], &[0, 3]]);
        let run = |number: usize, groups| {
            let mut replica = member(groups, Arc::default(), &config);
            while replica.steps() < STEPS {
                if replica.steps() == 5 && [1, 2].contains(&number) {
                    replica.leave();
                }
                if step(&mut replica) == Change::Left {
                    return None;
                }
            }
            assert_eq!(replica.take_warnings(), []);
            Some(bits(&mut replica))
        };
        let ends: Vec<_> = std::thread::scope(|scope| {
            let run = &run;
            let start = |(number, groups)| scope.spawn(move || run(number, groups));
            let members: Vec<_> = groups.into_iter().enumerate().map(start).collect();
            members.into_iter().filter_map(|member| member.join().unwrap()).collect()
        });
        assert_eq!(ends, vec![alone(&config); 2], "{}", config.sync);
    }
}

/// The worker that has an island and the next two hold its optimizer.
#[test]
fn state_of_three_neighbors_that_leave_is_lost_with_a_warning() {
    for (sync, survivors, is_lost) in [
        ("diloco:H=4", &[0][..], true),
        ("diloco:H=4", &[0, 3], false),
        ("diloco:H=4", &[1, 3], false),
        ("diloco:H=4,restart_inner", &[0], false),
        ("post-local:H=4,T=16", &[0], false),
    ] {
        let config = config(sync);
        let groups = threads::groups(survivors.len(), &Options::default()).unwrap();
        let groups: Vec<_> = groups.into_iter().map(|group| Mutex::new(Some(group))).collect();
        let ends = threads::spawn(4, |group| {
            let rank = group.rank().0;
            let mut replica = replica(Arc::new(group), &config, OPTIMIZER, Settings::default());
            while replica.steps() < 6 {
                step(&mut replica);
            }
            let place = survivors.iter().position(|survivor| *survivor == rank)?;
            let next = groups[place].lock().unwrap().take()?;
            replica.regroup(Arc::new(next)).unwrap();
            assert_eq!(replica.steps(), 4);
            let warnings = replica.take_warnings();
            while replica.steps() < STEPS {
                step(&mut replica);
            }
            Some((warnings, bits(&mut replica)))
        });
        let ends: Vec<_> = ends.unwrap().into_iter().flatten().collect();
        let expected = alone(&config);
        assert_eq!(ends.len(), survivors.len());
        for (place, (warnings, end)) in ends.into_iter().enumerate() {
            let islands = (0..SHARDS).collect();
            // The first rank warns.
            let lost =
                if is_lost && place == 0 { vec![Warning::IslandStateLost { islands }] } else { vec![] };
            assert_eq!(warnings, lost, "{sync}, {survivors:?}");
            assert_eq!(end != expected, is_lost, "{sync}, {survivors:?}");
        }
    }
}
