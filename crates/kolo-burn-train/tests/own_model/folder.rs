//! The run folder of a user's own program, and its writers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kolo_burn_train::{
    Error, Membership, Metric, Recipe, RunFolder, Trainer, TrainingContext, cross_entropy, image_tensors,
};
use kolo_claim::Candidate;
use kolo_comm::{Group, threads};
use kolo_data::Batch;
use kolo_recipe::Error::NotTheWriter;

use crate::model::{Computed, Perceptron, job, run};

#[test]
fn a_folder_with_a_part_of_the_run_is_gone_on_with() {
    let place = tempfile::tempdir().unwrap();
    let run = |folder: &str, ends_at: usize, batch_size: usize| {
        let config = Recipe { epochs: 3, shards: 4, batch_size, verify_every: 0, ..Recipe::default() };
        let calls = AtomicUsize::new(0);
        // From some shard on the loss is NaN, which ends the run.
        let loss = move |model: &Perceptron, batch: Batch, context: &TrainingContext<'_>| {
            let (images, labels) = image_tensors(batch, context.device);
            let factor = if calls.fetch_add(1, Ordering::SeqCst) < ends_at { 1.0 } else { f32::NAN };
            cross_entropy(model.scores(images).mul_scalar(factor), labels)
        };
        let trainer =
            Trainer::new(config, Arc::new(Computed), loss).evaluate([Metric::ACCURACY], Perceptron::right);
        let trainer = trainer.run_folder(place.path().join(folder));
        let trained = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new())?;
        Ok::<_, Error>(trained.summary.unwrap().weights_sha256)
    };
    let whole = run("whole", usize::MAX, 2).unwrap();
    // In the second of three epochs.
    let error = run("cut", 4 * 13, 2).unwrap_err();
    assert!(matches!(error, Error::Diverged(_)) && error.to_string().contains("step 13"), "{error}");
    // No NaN has reached a checkpoint.
    assert_eq!(run("cut", usize::MAX, 2).unwrap(), whole);
    let error = run("cut", usize::MAX, 3).unwrap_err();
    let words = error.to_string();
    assert!(error.is_input() && words.contains("began with batch_size = 2, not 3"), "{words}");
    // The run is complete: there is nothing left to do.
    assert_eq!(run("cut", usize::MAX, 2).unwrap(), whole);

    // A run that failed before its first checkpoint is no reason to refuse the correct one.
    let other = Recipe { batch_size: 3, ..Recipe::default() };
    let failed = RunFolder::create(place.path().join("failed"), &other).unwrap();
    std::fs::write(failed.path().join("steps.jsonl"), "{\"step\":0}\n").unwrap();
    assert_eq!(run("failed", usize::MAX, 2).unwrap(), whole);
    let config = std::fs::read_to_string(place.path().join("failed/config.toml")).unwrap();
    assert!(config.contains("batch_size = 2"), "{config}");
    let steps = std::fs::read_to_string(failed.path().join("steps.jsonl")).unwrap();
    assert_eq!(steps.lines().count(), 24, "{steps}");

    // An empty folder is as good as none; one with other files is not touched.
    std::fs::create_dir(place.path().join("empty")).unwrap();
    assert_eq!(run("empty", usize::MAX, 2).unwrap(), whole);
    let others = place.path().join("others");
    std::fs::create_dir(&others).unwrap();
    std::fs::write(others.join("thesis.tex"), "").unwrap();
    let error = run("others", usize::MAX, 2).unwrap_err();
    assert!(
        matches!(error, Error::Recipe(kolo_recipe::Error::NotARun { .. }))
            && others.join("thesis.tex").exists(),
        "{error}"
    );
}

/// Another process takes the run folder in the middle of a run, which ends at its next write.
#[test]
fn a_run_whose_folder_is_taken_ends_and_writes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let other = Rc::new(RefCell::new(None));
    let taken = other.clone();
    let trainer = Trainer::of(job(&path, None, false), Arc::new(Computed), Perceptron::loss);
    let trainer = trainer.evaluate([Metric::ACCURACY], Perceptron::right);
    let trainer = trainer.on_step(move |row, _| {
        if row.step == 10 {
            let forced = Candidate { take_over: true, ..Candidate::alone() };
            *taken.borrow_mut() = Some(kolo_claim::take(&path, &forced, |_| {}).unwrap());
        }
    });
    let error = trainer.train_as(Membership::Fixed(Group::alone()), Perceptron::new()).unwrap_err();
    let words = error.to_string();
    assert!(matches!(error, Error::Recipe(NotTheWriter(_))) && !error.is_input(), "{words}");
    assert!(words.contains("has been taken from this job by") && words.contains("--resume"), "{words}");
    let lines = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap().lines().count();
    // The lines after the first epoch of eight steps.
    assert_eq!((lines("steps.jsonl"), lines("metrics.csv")), (8, 2));
    assert!(!folder.path().join("summary.json").exists());
    other.borrow().as_ref().unwrap().check().unwrap();
}

/// All ranks of a group end with the same reason if their rank 0 may not write.
#[test]
fn a_folder_that_another_process_writes_is_refused_to_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    // A claim of a living process of this host: this one's parent.
    let held = kolo_claim::take(folder.path(), &Candidate::alone(), |_| {}).unwrap();
    let file = folder.path().join(".claims").join(format!("{:08}", held.claim().term));
    let text = std::fs::read_to_string(&file).unwrap();
    let parent = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).unwrap();
    let mut claim: serde_json::Value = serde_json::from_str(&text).unwrap();
    claim["owner"]["pid"] = parent.into();
    let started = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    claim["owner"]["started"] = started.parse::<u64>().unwrap().into();
    std::fs::write(&file, claim.to_string()).unwrap();
    let errors = threads::spawn(3, |group| run(group, job(folder.path(), None, false)).unwrap_err()).unwrap();
    for error in errors {
        let words = error.to_string();
        assert!(matches!(error, Error::Recipe(NotTheWriter(_))) && error.is_input(), "{words}");
        assert!(words.contains(&format!("process {parent} on ")) && words.contains("--take-over"), "{words}");
    }
    assert!(!folder.path().join("steps.jsonl").exists());
    let mut forced = job(folder.path(), None, false);
    forced.take_over = true;
    run(Group::alone(), forced).unwrap();
}
