//! The order in which a run writes its files: the states that a power failure could leave.

use std::io;
use std::path::Path;

use kolo_burn_train::{Job, LiveMetrics, RunFolder};
use kolo_comm::Group;
use kolo_durable::Operation;
use kolo_durable::recording::{Recording, mistakes};

use crate::model::{job, run};

/// A run that writes all kinds of files: checkpoints every three steps and the best one, event files.
fn all(folder: &Path, steps: Option<u64>, resume: bool) -> Job {
    let mut all = job(folder, steps, resume);
    all.config.checkpoint_steps = Some(3);
    all.config.best_metric = Some("accuracy".into());
    all.live = LiveMetrics { tensorboard: true, ..LiveMetrics::default() };
    all
}

/// True for a file that certifies that all steps before it have been recorded.
fn seals(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("step-") || name == "summary.json"
}

#[test]
fn a_checkpoint_comes_after_the_lines_of_its_steps_and_every_name_is_durable() {
    let place = tempfile::tempdir().unwrap();
    let recording = Recording::of(place.path());
    let folder = RunFolder::create(place.path().join("runs/one"), &all(place.path(), None, false).config);
    let path = folder.unwrap().path().to_owned();
    run(Group::alone(), all(&path, Some(11), false)).unwrap();
    run(Group::alone(), all(&path, None, true)).unwrap();
    let operations = recording.operations();
    assert!(operations.iter().filter(|operation| seals(operation.path())).count() > 6, "{operations:?}");
    let found = mistakes(&operations, seals);
    assert!(found.is_empty(), "{found:#?}");
}

/// A file system that cannot sync folders does not end the run; a disk that fails does, with an error.
#[test]
fn a_run_goes_on_where_folders_cannot_be_synced() {
    for (errno, ends_well) in [(22, true), (95, true), (5, false)] {
        let place = tempfile::tempdir().unwrap();
        let recording = Recording::failing(place.path(), move |operation| {
            let is_sync = matches!(operation, Operation::SyncFolder(_));
            is_sync.then(|| io::Error::from_raw_os_error(errno))
        });
        let ended = run(Group::alone(), all(place.path(), None, false));
        drop(recording);
        assert_eq!(ended.is_ok(), ends_well, "{errno}: {:?}", ended.err());
        if ends_well {
            assert!(RunFolder::at(place.path().into()).is_complete());
        }
    }
}
