//! Loading is collective: ranks with disks of their own continue from the same checkpoint, or all return the
//! reason why not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::checkpoints::{adamw, at, flip, step, three};
use crate::common::replica;
use kolo_comm::{Rank, threads};
use kolo_ddp::optimizer::Settings;
use kolo_ddp::{Config, Replica, checkpoint};

/// Three ranks with disks of their own.
fn disks() -> (tempfile::TempDir, [PathBuf; 3]) {
    let top = tempfile::tempdir().unwrap();
    let disks = [0, 1, 2].map(|rank| top.path().join(format!("disk{rank}")));
    disks.iter().for_each(|disk| drop(three(disk)));
    (top, disks)
}

/// Returns the result of `work` on each of three ranks with its disk.
fn on_each<R: Send>(disks: &[PathBuf; 3], work: impl Fn(&mut Replica, &Path) -> R + Sync) -> Vec<R> {
    threads::spawn(3, |group| {
        let disk = &disks[group.rank().0];
        let mut replica = replica(Arc::new(group), &Config::default(), "adamw", Settings::default());
        work(&mut replica, disk)
    })
    .unwrap()
}

#[test]
fn ranks_that_load_different_checkpoints_report_which_rank_has_which() {
    let (_top, disks) = disks();
    // Of the same step, but of another run.
    let mut other = adamw();
    (5..8).for_each(|n| step(&mut other, n));
    fs::remove_dir_all(checkpoint::path(&disks[2], 3)).unwrap();
    checkpoint::save(&disks[2], &mut other, &at(3)).unwrap();
    for (steps, texts) in [
        ([3, 3, 2], ["of step 3 with manifest ", "on ranks 0 and 1 and the one of step 2"]),
        ([3, 3, 3], ["of step 3 with manifest ", "on ranks 0 and 1 and the one of step 3"]),
    ] {
        let errors = on_each(&disks, |replica, disk| {
            let step = steps[replica.group().rank().0];
            checkpoint::load(&checkpoint::path(disk, step), replica).unwrap_err().to_string()
        });
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
        assert!(texts.iter().all(|text| errors[0].contains(text)), "{}", errors[0]);
    }
    // The same content on different disks is the same checkpoint.
    let loaded =
        on_each(&disks, |replica, disk| checkpoint::load(&checkpoint::path(disk, 2), replica).unwrap());
    assert_eq!(loaded, [at(2), at(2), at(2)]);
}

#[test]
fn a_rank_that_cannot_read_its_checkpoint_is_named_by_all() {
    for (name, bit) in [("manifest.json", 77), ("position.json", 9), ("optimizer.safetensors", 9000)] {
        let (_top, disks) = disks();
        flip(&checkpoint::path(&disks[1], 3).join(name), bit);
        let errors = on_each(&disks, |replica, disk| {
            checkpoint::load(&checkpoint::path(disk, 3), replica).unwrap_err().to_string()
        });
        for error in errors {
            assert!(error.starts_with("rank 1 cannot continue") && error.contains(name), "{error}");
        }
    }
}

#[test]
fn the_newest_checkpoint_that_all_ranks_can_read_is_resumed() {
    let (_top, disks) = disks();
    let resume = || on_each(&disks, |replica, disk| checkpoint::resume(disk, replica).map(Option::unwrap));
    assert!(resume().iter().all(|resumed| resumed.as_ref().unwrap().position == at(3)));
    // One is missing, the next one damaged, each on another rank.
    fs::remove_dir_all(checkpoint::path(&disks[2], 3)).unwrap();
    flip(&checkpoint::path(&disks[1], 2).join("weights.safetensors"), 9000);
    let ends = on_each(&disks, |replica, disk| {
        let resumed = checkpoint::resume(disk, replica).unwrap().unwrap();
        let warnings = replica.take_warnings();
        assert_eq!(warnings.len(), if replica.group().rank() == Rank(0) { 2 } else { 0 });
        step(replica, 2);
        (resumed.position, resumed.passed_over, replica.steps(), replica.values().unwrap().to_vec())
    });
    for (position, passed_over, steps, values) in &ends {
        assert_eq!((position, *steps), (&at(1), 2));
        assert_eq!(values, &ends[0].3);
        assert!(passed_over[0].contains("step-00000003 is not there (on rank 2)"), "{passed_over:?}");
        assert!(passed_over[1].contains("weights.safetensors") && passed_over[1].contains("(on rank 1)"));
    }
    fs::remove_dir_all(&disks[0]).unwrap();
    for error in resume() {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no checkpoint is good on all ranks") && error.contains("rank 0"), "{error}");
    }
    disks[1..].iter().for_each(|disk| fs::remove_dir_all(disk).unwrap());
    assert!(
        on_each(&disks, |replica, disk| checkpoint::resume(disk, replica).unwrap())
            .iter()
            .all(Option::is_none)
    );
}
