//! One copy of the state for all workers of a host: the bits of the plain run, also after deaths in the
//! middle of an update.

use std::sync::{Arc, Barrier};

use crate::common::groups::{RATE, SHARDS, choices, config, gradient, groups, replica_of, steps};
use crate::common::{bits, noise, pass, refusal};
use kolo_comm::{Group, Options, threads};
use kolo_ddp::optimizer::{self, Layout, Optimizer, Settings, Update};
use kolo_ddp::{Config, Replica, Sharding, SpanId};
use kolo_testing::{Over, is_thorough, spawn};

const STEPS: u64 = 8;

fn host(config: &Config) -> Config {
    Config { sharding: Sharding::Host, ..config.clone() }
}

fn new(group: Group, config: &Config, optimizer: impl Optimizer) -> Replica {
    replica_of(group, |i| 1.5 * noise(1, i), config, optimizer).unwrap()
}

#[test]
fn every_optimizer_has_the_bits_of_the_plain_run() {
    for (number, (choice, of_block)) in choices().into_iter().enumerate() {
        let plain = config(groups(&of_block), if number % 2 == 0 { 0.0625 } else { 25.0 });
        let make = || optimizer::named(&choice.name, &choice.settings).unwrap();
        let run = |config: &Config, group: Group| {
            let mut replica = new(group, config, make());
            steps(&mut replica, 0..STEPS);
            bits(&mut replica)
        };
        let expected = run(&plain, Group::alone());
        let step = if is_thorough() { 1 } else { 3 };
        for world in (1 + number % step..=5).step_by(step) {
            let ends = spawn(Over::SHM, world, &Options::default(), |group| run(&host(&plain), group));
            assert!(ends.iter().all(|bits| *bits == expected), "{choice:?}, {world} ranks");
        }
    }
}

/// Runs the passes of a step.
fn passes(replica: &mut Replica) {
    let (step, layout) = (replica.steps(), replica.layout().clone());
    for shard in replica.shards() {
        let gradients: Vec<(usize, Vec<f32>)> = layout
            .spans()
            .iter()
            .enumerate()
            .rev()
            .map(|(n, span)| {
                let values = replica.latest(SpanId(n)).iter().zip(span.offset..);
                (n, values.map(|(value, index)| gradient(*value, index, step, shard)).collect())
            })
            .collect();
        pass(replica, 1.0, 1.0, gradients).unwrap();
    }
}

fn train(replica: &mut Replica, to: u64) {
    while replica.steps() < to {
        passes(replica);
        replica.step(RATE).unwrap();
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
        let mut plain = new(Group::alone(), &base, named());
        train(&mut plain, STEPS);
        let expected = bits(&mut plain);
        let config = Config { elastic: true, ..host(&base) };
        for (stops, stay, newcomers) in
            cases.iter().skip(number % 2).step_by(if is_thorough() { 1 } else { 2 })
        {
            let first = threads::groups(3, &Options::default()).unwrap();
            let world = stay.len() + newcomers;
            let mut next = threads::groups(world, &Options::default()).unwrap().into_iter();
            let mut second: Vec<Option<Group>> = (0..3).map(|_| None).collect();
            stay.iter().for_each(|rank| second[*rank] = next.next());
            // A thread cannot be ended as a process is that the others go on without.
            let failed = Barrier::new(3);
            let run = |group: Group, next: Option<Group>| {
                let rank = group.rank().0;
                let mut replica = new(group, &config, named());
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
            };
            let join = |group: Group| {
                let mut replica = new(group, &config, named());
                train(&mut replica, STEPS);
                Some(bits(&mut replica))
            };
            std::thread::scope(|scope| {
                let (run, join) = (&run, &join);
                let start = |(group, next)| scope.spawn(move || run(group, next));
                let ranks: Vec<_> = first.into_iter().zip(second).map(start).collect();
                let ranks = ranks.into_iter().chain(next.map(|group| scope.spawn(move || join(group))));
                let ranks: Vec<_> = ranks.collect();
                let ends: Vec<_> = ranks.into_iter().filter_map(|rank| rank.join().unwrap()).collect();
                assert_eq!(ends.len(), world);
                assert!(ends.iter().all(|end| *end == expected), "{name}, {stops:?}, {stay:?}");
            });
        }
    }
}

/// A tensor that somebody keeps, such as a copy of the model, shows the same values forever.
#[test]
fn values_that_somebody_keeps_stay_as_they_are() {
    let plain = config(Vec::new(), 0.0625);
    let adamw = || optimizer::named("adamw", &Settings::default()).unwrap();
    let mut alone = new(Group::alone(), &plain, adamw());
    train(&mut alone, STEPS);
    let expected = bits(&mut alone);
    let ends = threads::spawn(2, |group| {
        let mut replica = new(group, &host(&plain), adamw());
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

/// An optimizer with state that only it can hold.
struct Own(Vec<f32>);

impl Optimizer for Own {
    fn init(&mut self, layout: &Layout) {
        self.0 = vec![0.0; layout.len()];
    }

    fn begin(&mut self, _: u64, _: f64) {}

    fn update(&mut self, _: Update<'_>) {}

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        vec![("own", &mut self.0)]
    }
}

#[test]
fn what_a_shared_state_needs_is_named() {
    let config = host(&config(Vec::new(), 0.0625));
    let words = refusal(Group::alone(), &Config { redundancy: 2, ..config.clone() });
    assert!(words.contains("outlives each worker; leave `Config::redundancy` at 1"), "{words}");
    let error = replica_of(Group::alone(), |_| 0.0, &config, Own(Vec::new())).unwrap_err().to_string();
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
