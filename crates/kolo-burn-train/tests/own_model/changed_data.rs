//! A run continues from a checkpoint with the same samples in the same order, or is refused.

use std::path::Path;

use kolo_burn_train::{Error, Job, Recipe, check_resume};
use kolo_comm::Group;
use kolo_data::Part;

use crate::model::{Relabeled, job, run_over};

/// Eleven steps of 24, of which eight are the first epoch.
fn first_part(folder: &Path) {
    run_over(Group::alone(), job(folder, Some(11), false), Relabeled::default()).unwrap().unwrap();
}

fn rest(folder: &Path, change: impl FnOnce(&mut Recipe)) -> Job {
    let mut job = job(folder, None, true);
    change(&mut job.config);
    job
}

#[test]
fn other_samples_and_other_orders_are_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    first_part(place.path());
    let steps = || std::fs::read_to_string(place.path().join("steps.jsonl")).unwrap();
    let before = steps();
    let unchanged = Relabeled::default;
    for (job, data, words) in [
        (
            rest(place.path(), |recipe| recipe.batch_size = 3),
            unchanged(),
            "batch_size = 2, and this run has 3",
        ),
        (rest(place.path(), |recipe| recipe.shards = 2), unchanged(), "shards = 4, and this run has 2"),
        (rest(place.path(), |recipe| recipe.seed = 1), unchanged(), "seed = 0, and this run has 1"),
        (
            rest(place.path(), |recipe| recipe.large_batch.grow_batch = vec!["2:2".parse().unwrap()]),
            unchanged(),
            "large_batch.grow_batch = none, and this run has 2:2",
        ),
        (
            rest(place.path(), |_| ()),
            Relabeled { more: 1, ..unchanged() },
            "the training data = 62 samples (content ",
        ),
        (
            rest(place.path(), |_| ()),
            Relabeled::at(Part::Train, 3),
            "the training data = 62 samples (content ",
        ),
        (rest(place.path(), |_| ()), Relabeled::at(Part::Test, 3), "the test data = 20 samples (content "),
    ] {
        let error = run_over(Group::alone(), job, data).unwrap_err();
        let told = error.to_string();
        assert!(matches!(error, Error::OtherSamples { .. }) && error.is_input(), "{told}");
        assert!(told.contains(words) && told.contains("step-00000011 was written with"), "{told}");
    }
    assert_eq!(steps(), before, "a run that is refused changes nothing");
    // More epochs, or another rate, change no sample.
    let longer = rest(place.path(), |recipe| (recipe.epochs, recipe.rate.lr) = (4, 0.05));
    assert_eq!(run_over(Group::alone(), longer, unchanged()).unwrap().unwrap().steps, 32);
    let changes = std::fs::read_to_string(place.path().join("changes.jsonl")).unwrap();
    let changes: Vec<serde_json::Value> =
        changes.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = |setting: &str, before: &str, after: &str| serde_json::json!({ "step": 11, "setting": setting, "before": before, "after": after });
    let expected = [row("epochs", "3", "4"), row("rate.lr", "0.1", "0.05"), row("steps", "11", "nothing")];
    assert_eq!(changes, expected);
}

/// The error names the setting in `config.toml`, not only the file that does not fit.
#[test]
fn a_checkpoint_of_other_state_is_refused_with_the_setting_that_has_changed() {
    let place = tempfile::tempdir().unwrap();
    first_part(place.path());
    let sign = rest(place.path(), |recipe| recipe.reduction = "ef-sign".into());
    let error = run_over(Group::alone(), sign, Relabeled::default()).unwrap_err();
    assert!(matches!(error, Error::OtherState { .. }) && error.is_input(), "{error}");
    let words = "step-00000011 was written with reduction = \"sum\", and config.toml has \"ef-sign\": ";
    assert!(error.to_string().contains(words) && error.to_string().contains("residuals"), "{error}");

    let other = rest(place.path(), |recipe| recipe.model = "another".into());
    let folder = other.folder.clone().unwrap();
    let error = check_resume(&folder, &other.config, &Relabeled::default(), false).unwrap_err();
    assert!(error.to_string().contains("written with model = \"small\", and config.toml has"), "{error}");
}

/// Settings that end the run before its checkpoint.
#[test]
fn a_checkpoint_beyond_the_end_of_the_run_is_refused() {
    let place = tempfile::tempdir().unwrap();
    first_part(place.path());
    for (job, words) in [
        (rest(place.path(), |recipe| recipe.steps = Some(10)), "which has 10 steps with steps = 10;"),
        (rest(place.path(), |recipe| recipe.epochs = 1), "which has 8 steps with epochs = 1;"),
        (
            rest(place.path(), |recipe| (recipe.epochs, recipe.steps) = (1, Some(9))),
            "which has 8 steps with epochs = 1;",
        ),
        (
            // Two steps an epoch.
            Job { accept_changed_data: true, ..rest(place.path(), |recipe| recipe.batch_size = 8) },
            "which has 6 steps with epochs = 3;",
        ),
    ] {
        let folder = job.folder.clone().unwrap();
        let checked =
            check_resume(&folder, &job.config, &Relabeled::default(), job.accept_changed_data).unwrap_err();
        let error = run_over(Group::alone(), job, Relabeled::default()).unwrap_err();
        assert!(matches!(error, Error::BeyondEnd { .. }) && error.is_input(), "{error}");
        assert!(error.to_string().contains(words) && error.to_string().contains("after step 11"), "{error}");
        assert_eq!(checked.to_string(), error.to_string());
    }
}

#[test]
fn changed_data_is_taken_where_the_user_says_so() {
    let place = tempfile::tempdir().unwrap();
    first_part(place.path());
    let job = Job { accept_changed_data: true, ..rest(place.path(), |_| ()) };
    let summary = run_over(Group::alone(), job, Relabeled { more: 8, ..Relabeled::default() });
    let summary = summary.unwrap().unwrap();
    // Three epochs of 70 samples.
    assert_eq!(summary.steps, 27);
    let told = &summary.warnings[0];
    assert!(
        told.starts_with("continuing with the training data = 70 samples (")
            && told.contains("which was 62 samples"),
        "{told}"
    );
}
