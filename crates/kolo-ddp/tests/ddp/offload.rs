//! The optimizer's state in a file: the same bits as in memory.

use std::fs;
use std::path::Path;

use crate::common::checkpoints::{at, saved};
use crate::common::groups::{choices, config, groups, replica_of, replica_with, train};
use crate::common::own::Own;
use crate::common::{bits, pass, refusal};
use kolo_comm::{Group, Options, threads};
use kolo_ddp::optimizer::{self, Averaged, Settings};
use kolo_ddp::{Config, Replica, Sharding, checkpoint};
use kolo_testing::{Over, spawn};

const STEPS: u64 = 6;
const CUT: u64 = 3;

fn in_file(config: &Config, folder: &Path) -> Config {
    Config { offload: Some(folder.into()), ..config.clone() }
}

/// Each optimizer alone, and with each kind of division on several ranks.
#[test]
fn every_optimizer_has_the_bits_of_the_run_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (choice, of_block)) in choices().into_iter().enumerate() {
        let plain = config(groups(&of_block), if number % 2 == 0 { 0.0625 } else { 25.0 });
        let make = || optimizer::named(&choice.name, &choice.settings).unwrap();
        let run = |config: &Config, group: Group| {
            let mut replica = replica_with(group, config, make());
            train(&mut replica, STEPS);
            bits(&mut replica)
        };
        let expected = run(&plain, Group::alone());
        let offloaded = in_file(&plain, folder.path());
        assert!(run(&offloaded, Group::alone()) == expected, "{choice:?} alone");
        let (sharding, redundancy, world, over) = match number % 3 {
            0 => (Sharding::Nothing, 1, 2, Over::SHM),
            1 => (Sharding::Optimizer, 1, 3, Over::TCP),
            _ => (Sharding::Gradients, 2, 3, Over::SHM),
        };
        let config = Config { sharding, redundancy, ..offloaded };
        let ends = spawn(over, world, &Options::default(), |group| run(&config, group));
        assert!(ends.iter().all(|bits| *bits == expected), "{choice:?}, {sharding:?}, {world} ranks");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
}

/// A checkpoint does not show where the state was, and either place continues from it.
#[test]
fn checkpoints_are_those_of_the_run_in_memory() {
    let place = tempfile::tempdir().unwrap();
    for (choice, of_block) in
        choices().into_iter().filter(|(choice, _)| ["adamw", "lamb"].contains(&&*choice.name))
    {
        let plain = config(groups(&of_block), 0.0625);
        let divided = |config: &Config| Config { sharding: Sharding::Optimizer, ..config.clone() };
        let offloaded = in_file(&plain, place.path());
        let make = |config: Config| {
            let choice = choice.clone();
            move |group: Group| {
                let named = optimizer::named(&choice.name, &choice.settings).unwrap();
                replica_with(group, &config, Averaged::new(named, 0.9, true))
            }
        };
        let end = |replica: &mut Replica| {
            train(replica, STEPS);
            (bits(replica), replica.averages().unwrap().unwrap())
        };
        let expected = {
            let mut whole = make(plain.clone())(Group::alone());
            train(&mut whole, CUT);
            end(&mut whole)
        };
        let folders: Vec<_> = [(1, plain.clone()), (1, offloaded.clone()), (3, divided(&offloaded))]
            .into_iter()
            .map(|(writers, config)| saved(CUT, writers, make(config), |replica| train(replica, CUT)))
            .collect();
        let content = |folder: &tempfile::TempDir| {
            let reader = checkpoint::Reader::open(&checkpoint::path(folder.path(), CUT)).unwrap();
            reader.manifest().manifest_sha256.clone()
        };
        assert!(folders.iter().all(|folder| content(folder) == content(&folders[0])), "{choice:?}");
        for (folder, (readers, config)) in folders.iter().rev().zip([
            (1, offloaded.clone()),
            (2, plain.clone()),
            (3, Config { sharding: Sharding::Gradients, redundancy: 2, ..offloaded.clone() }),
        ]) {
            let ends = threads::spawn(readers, |group| {
                let mut replica = make(config.clone())(group);
                checkpoint::resume(folder.path(), &mut replica).unwrap().unwrap();
                end(&mut replica)
            });
            assert!(ends.unwrap().iter().all(|end| *end == expected), "{choice:?}, {readers} readers");
        }
    }
}

/// The file of this process's only replica in `folder`, by its descriptor.
fn descriptor(folder: &Path) -> std::path::PathBuf {
    let mut all = fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
    let is_in =
        |path: &std::path::PathBuf| fs::read_link(path).is_ok_and(|target| target.starts_with(folder));
    all.find(is_in).unwrap()
}

#[test]
fn a_file_that_fails_in_the_middle_ends_the_run_and_nothing_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let config = in_file(&config(Vec::new(), 0.0625), folder.path());
    let mut replica =
        replica_with(Group::alone(), &config, optimizer::named("adamw", &Settings::default()).unwrap());
    train(&mut replica, 2);
    // A checkpoint waits for the file and forgets what was read ahead: steps whose records are all in memory
    // would not notice the loss.
    let before = tempfile::tempdir().unwrap();
    checkpoint::save(before.path(), &mut replica, &at(2)).unwrap();
    // Nobody else can reach the file, which has no name.
    fs::OpenOptions::new().write(true).open(descriptor(folder.path())).unwrap().set_len(0).unwrap();
    let mut failed = None;
    for _ in 0..2 {
        for _ in replica.shards() {
            let gradients = (0..7).rev().map(|n| {
                let len = replica.layout().spans()[n].len;
                (n, vec![0.5f32; len])
            });
            let gradients: Vec<_> = gradients.collect();
            if let Err(error) = pass(&mut replica, 1.0, 1.0, gradients) {
                failed.get_or_insert(error.to_string());
            }
        }
        if let Err(error) = replica.step(0.1) {
            failed.get_or_insert(error.to_string());
        }
    }
    let error = failed.unwrap();
    assert!(error.starts_with("rank 0: cannot read byte "), "{error}");
    assert!(error.contains(&folder.path().display().to_string()), "{error}");
    assert_eq!(replica.values().unwrap_err().to_string(), error);
    let checkpoints = tempfile::tempdir().unwrap();
    assert!(checkpoint::save(checkpoints.path(), &mut replica, &at(4)).is_err());
    assert_eq!(fs::read_dir(checkpoints.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_in_a_file_is_refused_in_one_sentence() {
    let missing = Config { offload: Some("/nowhere/at/all".into()), ..Config::default() };
    let error = refusal(Group::alone(), &missing);
    let words = "/nowhere/at/all: the folder for the optimizer's state does not exist; create it";
    assert_eq!(error, words);
    let config = in_file(&Config::default(), &std::env::temp_dir());
    let error = replica_of(Group::alone(), |_| 0.0, &config, Own::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("the optimizer `ddp::common::own::Own` keeps its state in memory of its own"),
        "{error}"
    );
}
