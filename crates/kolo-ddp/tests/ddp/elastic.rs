//! Workers that die at any moment, and others that join: the weights end in the same bits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use crate::common::elastic::{STEPS, Script, check, run};
use crate::common::{
    Combination, NAMES, Scripted, WIDTH, combinations, lively, lively_reduction, noise, run_shard, sgd, specs,
};
use kolo_comm::{Group, SHM, TCP};
use kolo_ddp::optimizer::{self, OPTIMIZERS, Settings};
use kolo_ddp::reduction::{self, REDUCTIONS};
use kolo_ddp::sync::SYNCS;
use kolo_ddp::{Config, Replica};
use kolo_testing::{is_thorough, selected};

#[test]
fn deaths_and_joins_do_not_change_the_bits() {
    for (n, combination) in combinations().iter().enumerate() {
        let keeps = !combination.2.shard_state().is_empty();
        // With the sum the steps themselves are tested, with the others their state.
        let seeds = match (combination.2.name() == "sum", is_thorough()) {
            (true, true) => [15, 5, 5],
            (false, true) => [6, 1, 1],
            (true, false) => [3, 1, 1],
            (false, false) => [2, 1, 1],
        };
        let kinds = [(None, false), (Some(1.5), false), (None, true)].into_iter().zip(seeds);
        for (kind, ((clip_norm, scaled), seeds)) in kinds.enumerate() {
            // Neighbors in the table take turns with kinds and transports.
            if !is_thorough() && combination.2.name() != "sum" && kind != n % 3 {
                continue;
            }
            let alone = Script::new(0, combination, clip_norm, scaled).undisturbed();
            let (expected, losses) = run(&alone, &TCP).remove(0);
            assert_eq!(expected.1.skipped_steps, if scaled { 2 } else { 0 });
            let mut transports = [&SHM, &TCP];
            transports.rotate_left((n / 3 + kind) % 2);
            for transport in selected(1, transports) {
                for seed in (0..seeds).map(|seed| n as u64 * seeds + seed) {
                    let script = match seed % 3 {
                        // None of four ranks has the state of all.
                        0 if !keeps => Script::new(seed, combination, clip_norm, scaled).then_alone(),
                        _ => Script::new(seed, combination, clip_norm, scaled),
                    };
                    check(&script, transport, seed, &expected, &losses);
                }
            }
        }
    }
}

/// When one of two ranks on one host dies, values that it has not read yet are read, or discarded with their
/// step.
#[test]
fn deaths_of_one_of_two_do_not_change_the_bits() {
    for optimizer in ["sgd", "adamw"].map(|name| optimizer::find(name).unwrap()) {
        let combination = (optimizer, lively(optimizer), lively_reduction(&REDUCTIONS[0]));
        let (expected, losses) = run(&Script::pair(0, &combination).undisturbed(), &TCP).remove(0);
        for seed in 0..if is_thorough() { 40 } else { 12 } {
            check(&Script::pair(seed, &combination), &SHM, seed, &expected, &losses);
        }
    }
}

/// The state of the program's own transform is sent to workers that join, and restored with a repeated step,
/// or with all steps since the last copy.
#[test]
fn what_a_transform_knows_survives_deaths_and_joins() {
    let find = |optimizer, reduction: &str| {
        let optimizer = optimizer::find(optimizer).unwrap();
        let entry = REDUCTIONS.iter().find(|entry| entry.name == reduction).unwrap();
        (optimizer, Settings::default(), lively_reduction(entry))
    };
    // Without copies, and with them.
    for combination in [find("adamw", "sum"), find("sgd", "top-k")] {
        let script = |seed| Script::new(seed, &combination, None, true).smoothed();
        let plain = run(&Script::new(0, &combination, None, true).undisturbed(), &TCP).remove(0);
        let (expected, losses) = run(&script(0).undisturbed(), &TCP).remove(0);
        assert!(expected != plain.0, "it does something");
        for seed in 0..8 {
            check(&script(seed), [&SHM, &TCP][seed as usize % 2], seed, &expected, &losses);
        }
    }
    let combination = find("adamw", "sum");
    let late = |seed| Script::late(seed, &combination, None).smoothed();
    let (expected, losses) = run(&late(0).undisturbed(), &TCP).remove(0);
    for seed in 0..4 {
        check(&late(seed), &TCP, seed, &expected, &losses);
    }
}

#[test]
fn late_updates_survive_deaths_and_joins_in_the_same_bits() {
    let keeps_nothing = |(.., reduction): &&Combination| !reduction.keeps_state();
    for (n, combination) in combinations().iter().filter(keeps_nothing).enumerate() {
        let script = |seed| Script::late(seed, combination, (n % 2 == 1).then_some(1.5));
        let (expected, losses) = run(&script(0).undisturbed(), &TCP).remove(0);
        assert_eq!(losses.len() as u64, STEPS);
        for (transport, seed) in selected(2, [(&SHM, 0), (&TCP, 1), (&SHM, 2), (&TCP, 3)]) {
            let seed = seed + 4 * n as u64;
            check(&script(seed), transport, seed, &expected, &losses);
        }
        // Each rank has all of the state.
        check(&script(5).then_alone(), &TCP, 5, &expected, &losses);
    }
}

/// Every step is run with another setting, which all ranks of a generation must take at the same step.
#[test]
fn tuning_survives_deaths_and_joins_in_the_same_bits() {
    for (n, combination) in combinations().iter().step_by(5).enumerate() {
        let scaled = n % 2 == 1;
        let script = |seed| Script::new(seed, combination, None, scaled);
        let (expected, losses) = run(&script(0).undisturbed(), &TCP).remove(0);
        for (transport, seed) in [(&SHM, 2 * n as u64), (&TCP, 2 * n as u64 + 1)] {
            check(&script(seed).tuned(), transport, seed, &expected, &losses);
        }
    }
}

/// Every mode of the table with islands; a run has rounds before, in and after each death.
fn rare_modes() -> Vec<String> {
    let rare = SYNCS.iter().filter(|mode| mode.setting("H").is_some());
    rare.flat_map(|mode| {
        let rounds = if mode.setting("T").is_some() { "H=3,T=9" } else { "H=4" };
        ["", ",restart_inner"].map(|more| format!("{}:{rounds}{more}", mode.name))
    })
    .collect()
}

#[test]
fn islands_survive_deaths_and_joins_in_the_same_bits() {
    for (n, sync) in rare_modes().iter().enumerate() {
        let optimizer = &OPTIMIZERS[n % OPTIMIZERS.len()];
        let mut outer_reduction = lively_reduction(&REDUCTIONS[0]);
        if n % 3 == 2 {
            // Residuals of islands die with a worker, too.
            outer_reduction =
                reduction::named("ef-sign", &Settings::default().with("dense_below", 0.0)).unwrap();
        }
        let combination = (optimizer, lively(optimizer), outer_reduction);
        for islands in [6, 3, 2] {
            let script = |seed| Script::rarely(seed, &combination, sync, islands);
            let (expected, losses) = run(&script(0).undisturbed(), &TCP).remove(0);
            assert_eq!(losses.len() as u64, STEPS);
            assert_eq!(expected.1.skipped_steps, if islands == 3 { 2 } else { 0 });
            for (transport, seed) in selected(2, [(&SHM, 0), (&TCP, 1), (&SHM, 2), (&TCP, 3)]) {
                let seed = seed + 10 * (n * 3 + islands) as u64;
                check(&script(seed), transport, seed, &expected, &losses);
            }
            // If islands begin each round without state, each rank has all of it.
            if sync.contains("restart_inner") && combination.2.shard_state().is_empty() {
                check(&script(7).then_alone(), &TCP, 7, &expected, &losses);
            }
        }
    }
}

/// A newcomer that outlives the others before its first step must not count as one that can go on: its
/// program may lack what theirs would have sent it.
#[test]
fn a_newcomer_has_the_state_of_the_job_when_its_first_step_begins() {
    for (generation, begins) in [(0, true), (2, false)] {
        let (script, groups) = channel();
        script.send(Group::alone()).unwrap();
        let has_state: Arc<AtomicBool> = Arc::default();
        let membership =
            Scripted { groups, wanted: Arc::default(), has_state: has_state.clone(), generation };
        let values: Vec<f32> = (0..NAMES.len() * WIDTH).map(|i| noise(0, i)).collect();
        let mut replica = Replica::elastic(membership, &specs(), &values, &Config::default(), sgd()).unwrap();
        assert_eq!(has_state.load(Ordering::SeqCst), begins, "before the first step");
        run_shard(&mut replica, &[1]);
        replica.step(0.1).unwrap();
        assert!(has_state.load(Ordering::SeqCst), "after the first step");
    }
}
