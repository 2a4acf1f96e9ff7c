//! Divided state of which each part has several owners: workers that die, leave and join do not change the
//! bits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use crate::common::elastic::{Script, check, run};
use crate::common::groups::{
    RATE, SHARDS, alone, config, layout, model, passes, replica_with, train, two_generations,
};
use crate::common::{Scripted, bits, combinations, lively, lively_reduction, refusal, scripted};
use kolo_comm::{Group, SHM, TCP, threads};
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::reduction::{self, REDUCTIONS};
use kolo_ddp::sync::JobSetting;
use kolo_ddp::{Change, Config, Error, Replica, Sharding, SpanId};
use kolo_testing::{is_thorough, selected};

const STEPS: u64 = 14;

/// A worker dies at any moment of a step, maybe when all have their sums, and maybe another joins.
#[test]
fn deaths_and_joins_do_not_change_the_bits() {
    for (n, combination) in combinations().iter().enumerate() {
        let kinds = [(None, false), (Some(1.5), false), (None, true)];
        let is_sum = combination.2.name() == "sum";
        for (kind, (clip_norm, scaled)) in kinds.into_iter().enumerate() {
            // Neighbors in the table take turns with kinds and transports.
            if !is_thorough() && kind != n % 3 {
                continue;
            }
            let script = |seed| Script::new(seed, combination, clip_norm, scaled);
            let (expected, losses) = run(&script(0).undisturbed(), &TCP).remove(0);
            let mut transports = [&SHM, &TCP];
            transports.rotate_left((n / 3 + kind) % 2);
            let seeds = if is_sum || is_thorough() { 2 } else { 1 };
            for transport in selected(1, transports) {
                for seed in (0..seeds).map(|seed| (n + 31 * kind) as u64 * seeds + seed) {
                    let owners = 2 + seed as usize % 2;
                    check(&script(seed).divided(owners), transport, seed, &expected, &losses);
                    if is_sum && transport == &SHM {
                        check(&script(seed).in_host_memory(), transport, seed, &expected, &losses);
                    }
                    if is_sum {
                        let script = || script(seed).divided(owners);
                        for script in [script().with_gradients(), script().with_parameters()] {
                            check(&script, transport, seed, &expected, &losses);
                        }
                    }
                }
            }
        }
    }
}

/// Of two workers each has all of the state.
#[test]
fn deaths_of_one_of_two_do_not_change_the_bits() {
    let optimizer = optimizer::find("adamw").unwrap();
    let combination = (optimizer, lively(optimizer), lively_reduction(&REDUCTIONS[0]));
    let (expected, losses) = run(&Script::pair(0, &combination).undisturbed(), &TCP).remove(0);
    for seed in 0..if is_thorough() { 40 } else { 8 } {
        let transport = [&SHM, &TCP][seed as usize % 2];
        let script = || Script::pair(seed, &combination).divided(2);
        check(&script(), transport, seed, &expected, &losses);
        check(&script().with_gradients(), transport, seed, &expected, &losses);
        check(&script().with_parameters(), transport, seed, &expected, &losses);
        let host = Script::pair(seed, &combination).in_host_memory();
        check(&host, &SHM, seed, &expected, &losses);
    }
}

/// All kinds of division, or the one that the reduction permits.
fn divided(config: &Config, redundancy: usize) -> impl Iterator<Item = Config> {
    let of = |sharding| Config { sharding, redundancy, elastic: true, ..config.clone() };
    let takes = |config: &Config| config.sharding.exclusion(&JobSetting::of(config)).is_none();
    [Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters].map(of).into_iter().filter(takes)
}

/// The same, and one copy for all workers of the host.
fn divided_or_shared(config: &Config) -> impl Iterator<Item = Config> {
    let host = Config { sharding: Sharding::Host, elastic: true, ..config.clone() };
    let takes = host.sharding.exclusion(&JobSetting::of(&host)).is_none();
    divided(config, 2).chain(takes.then_some(host))
}

fn named(name: &str) -> Box<dyn Optimizer> {
    optimizer::named(name, &Settings::default()).unwrap()
}

/// Actions of a member, and the number of steps after which it takes them.
#[derive(Clone, Copy, PartialEq)]
enum Plan {
    Stays,
    /// Requests a change, so that others can join.
    Admits(u64),
    Leaves(u64),
}

/// Runs members through these generations; returns the bits of those that do not leave.
fn planned(config: &Config, name: &str, generations: &[&[usize]], plans: &[Plan]) -> Vec<Vec<u32>> {
    let groups = scripted(plans.len(), generations);
    let run = |groups: Receiver<Group>, plan: Plan| {
        let (specs, values) = model();
        let wanted: Arc<AtomicBool> = Arc::default();
        let membership = Scripted::new(groups, wanted.clone());
        let mut replica = Replica::elastic(membership, &specs, &values, config, named(name)).unwrap();
        while replica.steps() < STEPS {
            match plan {
                Plan::Admits(steps) if steps == replica.steps() => wanted.store(true, Ordering::SeqCst),
                Plan::Leaves(steps) if steps == replica.steps() => replica.leave(),
                _ => {}
            }
            passes(&mut replica);
            if replica.step(RATE).unwrap().change == Change::Left {
                return None;
            }
        }
        Some(bits(&mut replica))
    };
    std::thread::scope(|scope| {
        let run = &run;
        let start = |(groups, plan): (_, &Plan)| {
            let plan = *plan;
            scope.spawn(move || run(groups, plan))
        };
        let members: Vec<_> = groups.into_iter().zip(plans).map(start).collect();
        members.into_iter().filter_map(|member| member.join().unwrap()).collect()
    })
}

/// Both owners of a part leave at once; two workers join and one leaves; a job grows from one worker to
/// three.
#[test]
fn workers_that_leave_and_join_move_the_parts() {
    let plain = || config(Vec::new(), 0.0625);
    let keeping = || {
        let reduction = reduction::parse("ef-sign:dense_below=0").unwrap();
        Config { reduction, backup_every: 3, ..plain() }
    };
    for (base, name) in [(plain(), "adamw"), (plain(), "lamb"), (keeping(), "adamw")] {
        let expected = alone(&base, named(name), STEPS);
        let two_leave = (
            &[&[0usize, 1, 2, 3][..], &[2, 3]][..],
            &[Plan::Leaves(5), Plan::Leaves(5), Plan::Stays, Plan::Stays][..],
        );
        let two_join = (
            &[&[0usize, 1][..], &[0, 1, 2, 3], &[2, 3, 1]][..],
            &[Plan::Leaves(9), Plan::Admits(4), Plan::Stays, Plan::Stays][..],
        );
        let grows = (&[&[0usize][..], &[1, 0, 2]][..], &[Plan::Admits(3), Plan::Stays, Plan::Stays][..]);
        let changes = [two_leave, two_join, grows];
        let cases =
            divided_or_shared(&base).flat_map(|config| changes.map(|change| (config.clone(), change)));
        for (config, (generations, plans)) in cases {
            let ends = planned(&config, name, generations, plans);
            let stay = plans.iter().filter(|plan| !matches!(plan, Plan::Leaves(_))).count();
            assert_eq!(ends.len(), stay);
            assert!(ends.iter().all(|end| *end == expected), "{name} with {}", config.reduction.name());
        }
    }
}

/// Four ranks train; those that are not in `stay` die after the fifth step. Returns what becomes of the
/// others: their bits, or their error.
fn survivors(config: &Config, stay: &[usize]) -> Vec<Result<Vec<u32>, String>> {
    two_generations(4, stay, 0, |first, next| {
        let mut replica = replica_with(first?, config, named("adamw"));
        train(&mut replica, 5);
        bits(&mut replica);
        Some(match replica.regroup(Arc::new(next?)) {
            Ok(()) => {
                train(&mut replica, STEPS);
                Ok(bits(&mut replica))
            }
            Err(error) => {
                assert!(matches!(error, Error::OwnersLost { .. }), "{error}");
                Err(error.to_string())
            }
        })
    })
}

#[test]
fn the_death_of_all_owners_of_a_part_is_named_and_never_gives_other_bits() {
    let expected = alone(&config(Vec::new(), 0.0625), named("adamw"), STEPS);
    // Parts belong to ranks 0 and 1, 1 and 2, 2 and 3, 3 and 0.
    for (redundancy, stay, gone) in [
        (2, &[0, 2][..], None),
        (2, &[1, 2, 3], None),
        (2, &[2, 3], Some("ranks 0, 1")),
        (2, &[1, 2], Some("ranks 0, 3")),
        (3, &[2, 3], None),
        (3, &[1], Some("ranks 0, 2, 3")),
    ] {
        let plain = config(Vec::new(), 0.0625);
        let ends: Vec<_> = divided(&plain, redundancy).flat_map(|config| survivors(&config, stay)).collect();
        assert_eq!(ends.len(), 3 * stay.len());
        for end in &ends {
            match end {
                Ok(bits) => assert!(gone.is_none() && *bits == expected, "{redundancy} owners, {stay:?}"),
                Err(words) => {
                    let lost =
                        |what: &str| words.starts_with(&format!("only {} held {what} of `", gone.unwrap()));
                    assert!(lost("`first_moment`") || lost("the values"), "{words}");
                }
            }
        }
    }
}

#[test]
fn what_an_elastic_job_needs_to_divide_its_state_is_named() {
    let one = Config { shards: Some(4), elastic: true, sharding: Sharding::Optimizer, ..Config::default() };
    let words = refusal(Group::alone(), &one);
    assert!(words.contains("one worker") && words.ends_with("set `Config::redundancy` to 2"), "{words}");
    assert_eq!(refusal(Group::alone(), &Config { redundancy: 2, ..one.clone() }), "");
    for (sharding, redundancy) in [(Sharding::Nothing, 2), (Sharding::Optimizer, 0)] {
        let config = Config { sharding, redundancy, elastic: false, ..one.clone() };
        let words = refusal(Group::alone(), &config);
        assert!(
            words.starts_with(&format!("`Config::redundancy` is {redundancy}; give 1, or more")),
            "{words}"
        );
    }
    let errors = threads::spawn(2, |group| {
        let redundancy = 2 + group.rank().0;
        refusal(group, &Config { redundancy, shards: Some(SHARDS), ..one.clone() })
    });
    for error in errors.unwrap() {
        assert!(error.starts_with("redundancy is 2 on rank 0 and 3 on rank 1"), "{error}");
    }
}

/// A step fails on rank 2 just before it would step its parts, which the others have stepped by then; or on
/// all ranks, which repeat it.
#[test]
fn a_rank_that_has_its_sums_makes_the_step_when_the_next_group_forms() {
    const FAILS: u64 = 6;
    for (fail, counts) in [(&[2][..], true), (&[1, 2], true), (&[0, 1, 2], false)] {
        for (base, name) in [(config(Vec::new(), 0.0625), "adamw"), (config(Vec::new(), 25.0), "lamb")] {
            let expected = alone(&base, named(name), STEPS);
            for config in divided_or_shared(&base) {
                let ends = two_generations(3, &[0, 1, 2], 0, |group, next| {
                    let mut replica = replica_with(group?, &config, named(name));
                    let rank = replica.group().rank().0;
                    train(&mut replica, FAILS);
                    if fail.contains(&rank) {
                        replica.fail_when_ready_for_tests();
                    }
                    passes(&mut replica);
                    let failed = replica.step(RATE).map(drop).and_then(|()| replica.values().map(drop));
                    assert!(failed.is_err(), "rank {rank}");
                    // A program may look at its model before it handles the error.
                    (0..layout().spans().len()).for_each(|id| drop(replica.latest(SpanId(id)).to_vec()));
                    replica.group().abandon("it failed");
                    replica.regroup(Arc::new(next?)).unwrap();
                    assert_eq!(replica.steps(), FAILS + u64::from(counts), "rank {rank}, {fail:?}");
                    assert_eq!(replica.last_step().unwrap().step + 1, replica.steps());
                    train(&mut replica, STEPS);
                    Some(bits(&mut replica))
                });
                assert!(ends.len() == 3 && ends.iter().all(|end| *end == expected), "{name}, {fail:?}");
            }
        }
    }
}
