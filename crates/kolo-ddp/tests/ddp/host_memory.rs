//! One copy of the state for all workers of a host: the bits of the plain run, also after deaths in the
//! middle of an update.

use std::sync::{Arc, Barrier};

use crate::common::groups::{
    RATE, SHARDS, alone, choices, config, groups, passes, replica_of, replica_with, train, two_generations,
};
use crate::common::own::Own;
use crate::common::{bits, refusal};
use kolo_comm::{Group, Options, threads};
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{Config, Sharding, SpanId};
use kolo_testing::{Over, is_thorough, spawn};

const STEPS: u64 = 8;

fn host(config: &Config) -> Config {
    Config { sharding: Sharding::Host, ..config.clone() }
}

#[test]
fn every_optimizer_has_the_bits_of_the_plain_run() {
    for (number, (choice, of_block)) in choices().into_iter().enumerate() {
        let plain = config(groups(&of_block), if number % 2 == 0 { 0.0625 } else { 25.0 });
        let make = || optimizer::named(&choice.name, &choice.settings).unwrap();
        let expected = alone(&plain, make(), STEPS);
        let step = if is_thorough() { 1 } else { 3 };
        for world in (1 + number % step..=5).step_by(step) {
            let ends = spawn(Over::SHM, world, &Options::default(), |group| {
                let mut replica = replica_with(group, &host(&plain), make());
                train(&mut replica, STEPS);
                bits(&mut replica)
            });
            assert!(ends.iter().all(|bits| *bits == expected), "{choice:?}, {world} ranks");
        }
    }
}

/// Rank 1 stops in the middle of a block, and its memory is spoiled there; others may do so, too. Those in
/// `stay` go on, with a newcomer or without.
#[test]
fn a_death_in_the_middle_of_a_block_does_not_change_the_bits() {
    const FAILS: u64 = 5;
    // Of each rank that stops, the number of blocks that it has stepped before.
    let cases = [
        (&[(1, 0)][..], &[0usize, 2][..], 0),
        (&[(1, 1)], &[0, 2], 1),
        (&[(1, 0), (0, 1)], &[2], 0),
        (&[(0, 0), (2, 1)], &[1], 2),
        // A rank that reports the failure itself completes its own block.
        (&[(2, 0)], &[0, 1, 2], 0),
        (&[(0, 1), (1, 0), (2, 0)], &[1, 2], 1),
    ];
    for (number, name) in ["adamw", "lamb", "muon", "sgd"].into_iter().enumerate() {
        let base = config(Vec::new(), [0.0625, 25.0][number % 2]);
        let named = || {
            let settings = Settings::default();
            let settings = if name == "sgd" { settings.with("momentum", 0.9) } else { settings };
            optimizer::named(name, &settings).unwrap()
        };
        let expected = alone(&base, named(), STEPS);
        let config = Config { elastic: true, ..host(&base) };
        for (stops, stay, newcomers) in
            cases.into_iter().skip(number % 2).step_by(if is_thorough() { 1 } else { 2 })
        {
            // A thread cannot be ended as a process is that the others go on without.
            let failed = Barrier::new(3);
            let ends = two_generations(3, stay, newcomers, |first, next| {
                let Some(first) = first else {
                    let mut replica = replica_with(next?, &config, named());
                    train(&mut replica, STEPS);
                    return Some(bits(&mut replica));
                };
                let rank = first.rank().0;
                let mut replica = replica_with(first, &config, named());
                train(&mut replica, FAILS);
                if let Some((_, blocks)) = stops.iter().find(|(stops, _)| *stops == rank) {
                    replica.stop_in_block_for_tests(*blocks);
                }
                passes(&mut replica);
                assert!(replica.step(RATE).is_err(), "rank {rank}");
                replica.group().abandon("it failed");
                failed.wait();
                replica.regroup(Arc::new(next?)).unwrap();
                assert_eq!(replica.steps(), FAILS + 1, "rank {rank} of {stops:?}");
                train(&mut replica, STEPS);
                Some(bits(&mut replica))
            });
            assert_eq!(ends.len(), stay.len() + newcomers);
            assert!(ends.iter().all(|end| *end == expected), "{name}, {stops:?}, {stay:?}");
        }
    }
}

/// Rank 1 dies in an update, and rank 0 when both others have completed it, before the meeting in which they
/// do so ends: rank 2 waits for its notes in vain. The step counts, though no meeting has said so.
#[test]
fn a_death_right_after_a_completed_update_does_not_change_the_bits() {
    const FAILS: u64 = 5;
    let base = config(Vec::new(), 0.0625);
    let adamw = || optimizer::named("adamw", &Settings::default()).unwrap();
    let expected = alone(&base, adamw(), STEPS);
    let config = Config { elastic: true, ..host(&base) };
    let failed = Barrier::new(3);
    let ends = two_generations(3, &[0, 2], 0, |first, next| {
        let first = first?;
        let rank = first.rank().0;
        let mut replica = replica_with(first, &config, adamw());
        train(&mut replica, FAILS);
        if rank == 1 {
            replica.stop_in_block_for_tests(0);
        }
        passes(&mut replica);
        assert!(replica.step(RATE).is_err(), "rank {rank}");
        replica.group().abandon("it failed");
        failed.wait();
        let second = Arc::new(next?);
        if rank == 0 {
            replica.fail_when_ready_for_tests();
        }
        assert!(replica.regroup(second.clone()).is_err(), "rank {rank}");
        second.abandon("it died");
        if rank == 0 {
            return None;
        }
        replica.regroup(Arc::new(Group::alone())).unwrap();
        assert_eq!(replica.steps(), FAILS + 1);
        train(&mut replica, STEPS);
        Some(bits(&mut replica))
    });
    assert_eq!(ends, [expected]);
}

/// A tensor that somebody keeps, such as a copy of the model, shows the same values forever.
#[test]
fn values_that_somebody_keeps_stay_as_they_are() {
    let plain = config(Vec::new(), 0.0625);
    let adamw = || optimizer::named("adamw", &Settings::default()).unwrap();
    let expected = alone(&plain, adamw(), STEPS);
    let ends = threads::spawn(2, |group| {
        let mut replica = replica_with(group, &host(&plain), adamw());
        let mut kept = Vec::new();
        for step in 0..STEPS {
            let lent = replica.lend(SpanId(step as usize % 7));
            kept.extend(lent.map(|loan| (loan.values().to_vec(), loan)));
            train(&mut replica, step + 1);
        }
        assert_eq!(kept.len(), 7, "one of them is kept already");
        assert!(kept.iter().all(|(before, loan)| loan.values() == before));
        bits(&mut replica)
    });
    assert!(ends.unwrap().iter().all(|end| *end == expected));
}

#[test]
fn what_a_shared_state_needs_is_named() {
    let config = host(&config(Vec::new(), 0.0625));
    let words = refusal(Group::alone(), &Config { redundancy: 2, ..config.clone() });
    assert!(words.contains("outlives each worker; leave `Config::redundancy` at 1"), "{words}");
    let error = replica_of(Group::alone(), |_| 0.0, &config, Own::default()).unwrap_err().to_string();
    assert!(error.contains("workers cannot share it; implement `Optimizer::rule`"), "{error}");
    let shards = Some(SHARDS);
    let errors = spawn(Over::Mixed, 4, &Options::default(), |group| {
        refusal(group, &Config { shards, ..config.clone() })
    });
    assert!(
        errors.iter().all(|error| error.contains("these share it in 2 groups; start all on one host")),
        "{errors:?}"
    );
}
