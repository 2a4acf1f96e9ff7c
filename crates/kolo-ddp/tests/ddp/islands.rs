//! Islands that synchronize rarely: the same bits on any number of ranks. `sync_values.rs` has the values of
//! the papers.

use std::ops::Range;
use std::sync::Arc;

use crate::common::checkpoints::cut_and_resume;
use crate::common::own::Own;
use crate::common::{self, WIDTH, bits, clip, lively, refusal, replica, replica_with, run_shard};
use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::{OPTIMIZERS, Settings};
use kolo_ddp::reduction::{self, REDUCTIONS};
use kolo_ddp::sync::{SYNCS, SyncMode};
use kolo_ddp::{BucketCaps, Config, Error, LastStep, Replica, Sampler};

const SHARDS: usize = 4;
/// Number of samples with which steps end in a batch that does not reach every island.
const SAMPLES: usize = 41;

fn config(sync: &str, islands: usize) -> Config {
    Config { shards: Some(SHARDS), sync: sync.parse().unwrap(), islands: Some(islands), ..Config::default() }
}

/// Result of a run: the bits of the values, and the losses of all steps.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    values: Vec<u32>,
    losses: Vec<(u64, u64, u64)>,
}

/// Trains over those steps, the last of which ends its round.
fn train(replica: &mut Replica, steps: Range<u64>) -> Run {
    let sampler = Sampler::new(SAMPLES, 2, SHARDS, 1).unwrap();
    let mut known: Vec<LastStep> = Vec::new();
    for step in steps.clone() {
        let (epoch, within) = (step as usize / sampler.steps(), step as usize % sampler.steps());
        let order = sampler.epoch(epoch);
        if step + 1 == steps.end {
            replica.end_round();
        }
        for shard in replica.shards() {
            run_shard(replica, &order.shard(within, shard));
        }
        let report = replica.step(0.05).unwrap();
        assert_eq!(replica.is_synchronized(), !report.known.is_empty());
        assert_eq!(report.known.last().is_some(), report.traffic.summed_bytes > 0);
        known.extend(report.known);
    }
    assert!(known.iter().map(|step| step.step).eq(steps), "{known:?}");
    let losses = known.iter().map(|step| (step.step, step.loss.to_bits(), step.count.to_bits())).collect();
    Run { values: bits(replica), losses }
}

/// Trains on this number of ranks, all of which must have the same result.
fn train_on(world: usize, config: &Config, optimizer: &'static str, settings: Settings) -> Run {
    let mut runs = threads::spawn(world, |group| {
        train(&mut replica(Arc::new(group), config, optimizer, settings.clone()), 0..14)
    })
    .unwrap();
    assert!(runs.iter().all(|run| *run == runs[0]), "{world} ranks");
    runs.remove(0)
}

/// Every mode of the table with rounds that end in the middle of a run.
fn modes() -> Vec<String> {
    let short = |name: &str| match name {
        "every-step" => vec![name.into()],
        "post-local" => vec!["post-local:H=3,T=4".into(), "post-local:H=3,T=4,restart_inner".into()],
        _ => vec![format!("{name}:H=4"), format!("{name}:H=4,restart_inner")],
    };
    let is_of_islands =
        |mode: &String| mode.parse::<SyncMode>().unwrap().traits().rounds.is_some() || mode == "every-step";
    let known = SYNCS.iter().filter(|entry| is_of_islands(&entry.name.into()));
    known.flat_map(|entry| short(entry.name)).collect()
}

#[test]
fn the_same_bits_on_any_number_of_ranks_with_any_buckets() {
    let large = BucketCaps::of_mib(25.0);
    let small = BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH };
    for sync in modes().into_iter().filter(|mode| mode != "every-step") {
        for (n, islands) in [4, 2, 1].into_iter().enumerate() {
            let optimizer = &OPTIMIZERS[n % OPTIMIZERS.len()];
            let settings = lively(optimizer);
            let transforms = if n == 1 { clip(2.0) } else { Vec::new() };
            let all = Config { transforms, ..config(&sync, islands) };
            let mut expected = None;
            for (world, caps) in [(1, large), (2, small), (3, large), (4, small), (5, small)] {
                let config = Config { caps: Some(caps), ..all.clone() };
                let run = train_on(world, &config, optimizer.name, settings.clone());
                let expected = expected.get_or_insert_with(|| run.clone());
                assert!(run == *expected, "{sync}, {islands} islands, {world} ranks");
            }
        }
    }
}

/// The changes of islands can be compressed by every reduction that fits the outer step.
#[test]
fn compressed_changes_are_the_same_bits_on_any_number_of_ranks() {
    let small = BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH };
    let mut compressed = Vec::new();
    for (sync, momentum) in [("local:H=4", 0.0), ("diloco:H=4", 0.9)] {
        let outer = Settings::default().with("momentum", momentum).with("nesterov", momentum > 0.0);
        let outer = kolo_ddp::optimizer::named("sgd", &outer).unwrap();
        for (n, reduction) in common::reductions().enumerate() {
            let config = Config { reduction: reduction.clone(), ..config(sync, [4, 2][n % 2]) };
            if let Err(problem) = reduction.fits(&*outer, &[]) {
                assert!(refusal(Group::alone(), &config).contains(&problem), "{problem}");
                continue;
            }
            let alone = train_on(1, &config, "adamw", Settings::default());
            for (world, caps) in [(2, BucketCaps::of_mib(25.0)), (3, small), (4, small)] {
                let run = train_on(
                    world,
                    &Config { caps: Some(caps), ..config.clone() },
                    "adamw",
                    Settings::default(),
                );
                assert!(run == alone, "{sync}, {reduction:?}, {world} ranks");
            }
            assert!(!compressed.contains(&alone), "{sync}, {reduction:?} is what another one is");
            compressed.push(alone);
        }
    }
    assert!(compressed.len() >= REDUCTIONS.len(), "{} reductions", compressed.len());
}

#[test]
fn uneven_shares_do_not_change_the_bits() {
    for islands in [4, 2] {
        let config = config("diloco:H=3", islands);
        let expected = train_on(1, &config, "adamw", Settings::default());
        for shares in [vec![3.0, 1.0], vec![1.0, 0.0, 3.0], vec![0.0, 3.0, 1.0]] {
            let config = Config { shares: Some(shares.clone()), ..config.clone() };
            let run = train_on(shares.len(), &config, "adamw", Settings::default());
            assert!(run == expected, "{islands} islands, {shares:?}");
        }
    }
}

/// The largest difference, relative to the largest value.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    let largest = a.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

fn values_after(config: &Config, steps: u64) -> Vec<f32> {
    let mut replica = replica(Arc::new(Group::alone()), config, "sgd", Settings::default());
    let sampler = Sampler::new(1000, 2, SHARDS, 1).unwrap();
    let order = sampler.epoch(0);
    for step in 0..steps {
        for shard in replica.shards() {
            run_shard(&mut replica, &order.shard(step as usize, shard));
        }
        replica.step(0.05).unwrap();
    }
    replica.values().unwrap().to_vec()
}

#[test]
fn rounds_of_one_step_without_momentum_are_steps_of_all_shards() {
    let every_step = values_after(&Config { shards: Some(SHARDS), ..Config::default() }, 12);
    let distance_of = |sync: &str| distance(&every_step, &values_after(&config(sync, 4), 12));
    assert!(distance_of("local:H=1") < 1e-5, "{}", distance_of("local:H=1"));
    // Islands that do not synchronize do diverge.
    assert!(distance_of("local:H=12") > 1e-4, "{}", distance_of("local:H=12"));
}

#[test]
fn before_its_first_round_post_local_is_every_step() {
    let config = Config { caps: Some(BucketCaps::of_mib(25.0)), ..config("post-local:H=4,T=14", 4) };
    let every_step = Config { sync: "every-step".parse().unwrap(), islands: None, ..config.clone() };
    let settings = Settings::default;
    assert_eq!(train_on(2, &config, "adamw", settings()), train_on(2, &every_step, "adamw", settings()));
}

#[test]
fn a_run_that_is_resumed_goes_on_in_the_same_bits() {
    for sync in modes() {
        for (n, islands) in [4, 2].into_iter().enumerate() {
            if sync == "every-step" {
                continue;
            }
            // The sum, and one that keeps residuals.
            let reduction = reduction::named(["sum", "ef-sign"][n], &Settings::default()).unwrap();
            let config = Config { reduction, ..config(&sync, islands) };
            let adamw = |group: Group| replica(Arc::new(group), &config, "adamw", Settings::default());
            let mut whole = adamw(Group::alone());
            let whole = [train(&mut whole, 0..2), train(&mut whole, 2..9), train(&mut whole, 9..14)];
            for (cut, writers, readers) in [(2, 3, 2), (9, 2, 4), (9, 1, 3), (9, 6, 1)] {
                let before = |replica: &mut Replica| {
                    train(replica, 0..2);
                    if cut == 9 {
                        train(replica, 2..9);
                    }
                };
                let after = |replica: &mut Replica| {
                    if cut == 2 {
                        train(replica, 2..9);
                    }
                    train(replica, 9..14)
                };
                let resumed = cut_and_resume(cut, [writers, readers], adamw, before, after);
                let same = resumed.iter().all(|run| *run == whole[2]);
                assert!(
                    same,
                    "{sync}, {islands} islands, cut after {cut}, {writers} and then {readers} ranks"
                );
            }
        }
    }
}

#[test]
fn a_checkpoint_in_the_middle_of_a_round_is_refused() {
    let mut replica = replica(Arc::new(Group::alone()), &config("local:H=3", 4), "sgd", Settings::default());
    let folder = tempfile::tempdir().unwrap();
    for step in 0..2 {
        (0..SHARDS).for_each(|shard| run_shard(&mut replica, &[4 * step + shard]));
        replica.step(0.05).unwrap();
    }
    let error = checkpoint::save(folder.path(), &mut replica, &common::checkpoints::at(2)).unwrap_err();
    let text = "cannot be taken or loaded after 2 steps, in the middle of a round that began after 0";
    assert!(error.to_string().contains(text), "{error}");
    replica.end_round();
    (0..SHARDS).for_each(|shard| run_shard(&mut replica, &[8 + shard]));
    replica.step(0.05).unwrap();
    checkpoint::save(folder.path(), &mut replica, &common::checkpoints::at(3)).unwrap();
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let local = config("local:H=3", 4);
    for (config, text) in [
        (Config { islands: Some(3), ..local.clone() }, "cannot make 3 islands of 4 shards"),
        (Config { islands: Some(0), ..local.clone() }, "cannot make 0 islands of 4 shards"),
        (Config { elastic: true, shards: None, islands: None, ..local.clone() }, "set `Config::shards`"),
    ] {
        let error = refusal(Group::alone(), &config);
        assert!(error.contains(text), "{error}");
    }
    let own = replica_with(Arc::new(Group::alone()), &local, Box::new(Own::default()));
    let error = own.err().unwrap().to_string();
    assert!(error.contains("Own` cannot make another one: implement `Optimizer::another`"), "{error}");
    assert_eq!(refusal(Group::alone(), &local), "");
}

#[test]
fn ranks_that_were_given_different_settings_name_them() {
    let errors = |configs: [Config; 2], rate: [f64; 2], optimizer: [&'static str; 2]| {
        threads::spawn(2, |group| {
            let rank = group.rank().0;
            let settings = kolo_ddp::optimizer::named(optimizer[rank], &Settings::default()).unwrap();
            let mut replica = replica_with(Arc::new(group), &configs[rank], settings)?;
            for step in 0..2 {
                replica.shards().for_each(|shard| run_shard(&mut replica, &[shard, 5 + shard]));
                replica.step(if step == 0 { rate[rank] } else { 0.05 })?;
            }
            Ok::<_, Error>(())
        })
        .unwrap()
        .into_iter()
        .map(|result| result.unwrap_err().to_string())
        .collect::<Vec<_>>()
    };
    let local = || config("local:H=2", 4);
    let sgd = ["sgd", "sgd"];
    for (reported, text) in [
        (errors([local(), config("local:H=3", 4)], [0.05; 2], sgd), "synchronization is local:H=2 on rank 0"),
        (errors([local(), config("local:H=2", 2)], [0.05; 2], sgd), "islands is 4 on rank 0 and 2 on rank 1"),
        (errors([local(), local()], [0.05, 0.06], sgd), "since the last outer step is 0.05, 0.05 on rank 0"),
        (errors([local(), local()], [0.05; 2], ["sgd", "adamw"]), "an island's optimizer is sgd on rank 0"),
    ] {
        assert!(reported.iter().all(|error| error.contains(text)), "{text}: {reported:?}");
    }
}

#[test]
fn a_loss_that_is_not_finite_names_the_shard_of_the_job() {
    let errors = threads::spawn(2, |group| {
        let mut replica = replica(Arc::new(group), &config("diloco:H=4", 4), "sgd", Settings::default());
        for shard in replica.shards() {
            match shard {
                3 => replica.begin_shard(f64::NAN, 1.0).unwrap().finish().unwrap(),
                _ => run_shard(&mut replica, &[shard]),
            }
        }
        replica.step(0.05).err().map(|error| error.to_string())
    })
    .unwrap();
    let error = errors[1].clone().unwrap();
    assert!(error.contains("step 0") && error.contains("shard 3") && error.contains("rank 1"), "{error}");
}
