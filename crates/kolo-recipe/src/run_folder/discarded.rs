//! Run folders that are removed, because their run failed before it had anything to keep.

use std::fs;
use std::path::{Path, PathBuf};

use super::folder::{CLAIMS, CONFIG, RunFolder, TOKENIZER};
use super::made::JOB;

/// Entries that a run folder may have before the first checkpoint.
const BEFORE_A_CHECKPOINT: [&str; 14] = [
    CONFIG,
    JOB,
    CLAIMS,
    "checkpoints",
    "best",
    "preprocessing.json",
    TOKENIZER,
    "tensorboard",
    "tuning.jsonl",
    kolo_run_folder::STEPS,
    kolo_run_folder::METRICS,
    kolo_run_folder::BUCKETS,
    kolo_run_folder::RANKS,
    kolo_run_folder::GENERATIONS,
];

impl RunFolder {
    /// Removes the folder of a run that failed before its first step was recorded, because it would be in the
    /// way of the corrected run. A folder with any other contents stays.
    pub fn discard_unused(&self) {
        if !self.has_steps() {
            self.discard_without_checkpoint();
        }
    }

    /// Returns true if the metrics of a step have been written.
    pub fn has_steps(&self) -> bool {
        fs::metadata(self.path.join(kolo_run_folder::STEPS)).is_ok_and(|file| file.len() > 0)
    }

    /// Removes the folder of a run that failed by wrong input before its first checkpoint. A folder with any
    /// other contents stays, and so does one that another job writes: it may have refused this one.
    pub fn discard_without_checkpoint(&self) {
        if !self.has_no_checkpoint() || kolo_claim::is_written(&self.path).unwrap_or(true) {
            return;
        }
        let entries: Vec<PathBuf> =
            fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        let config = self.path.join(CONFIG);
        // A failure to remove an entry keeps the folder too.
        for path in entries.into_iter().filter(|path| *path != config) {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        if fs::remove_file(config).is_ok() {
            // Fails, as it should, if the folder got a new entry meanwhile.
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// True if the folder holds a run without a checkpoint, and no foreign files.
    fn has_no_checkpoint(&self) -> bool {
        let is_empty_folder =
            |path: &Path| fs::read_dir(path).map_or(true, |mut inside| inside.next().is_none());
        let mut entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let is_known = |name: &str| {
            let draft = name.strip_prefix('.').and_then(|name| name.strip_suffix(".part"));
            BEFORE_A_CHECKPOINT.contains(&draft.unwrap_or(name)) || name.starts_with(kolo_claim::DRAFT)
        };
        self.is_run()
            && is_empty_folder(&self.checkpoints())
            && is_empty_folder(&self.best())
            && entries.all(|entry| entry.file_name().to_str().is_some_and(is_known))
    }
}

#[cfg(test)]
mod tests {
    use kolo_claim::Candidate;

    use super::*;
    use crate::recipe::Recipe;

    #[test]
    fn a_run_that_has_failed_before_it_began_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(place.path().join("run"), &Recipe::default()).unwrap();
        drop(folder.claimed(Candidate::alone()).check());
        folder.discard_unused();
        assert!(!folder.path().exists());
        let folder = RunFolder::claim(place.path().join("run"), &Recipe::default(), "job").unwrap();
        for name in ["steps.jsonl", ".preprocessing.json.part", ".draft-0123"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(folder.path().join("metrics.csv"), "epoch\n").unwrap();
        fs::create_dir(folder.checkpoints()).unwrap();
        folder.discard_unused();
        assert!(!folder.path().exists());
        // A step, a checkpoint or a foreign file keeps the folder and all in it.
        for name in ["steps.jsonl", "checkpoints/step-00000001", "thesis.tex"] {
            let folder =
                RunFolder::create(place.path().join(name.replace('/', "-")), &Recipe::default()).unwrap();
            fs::create_dir(folder.checkpoints()).unwrap();
            fs::write(folder.path().join(name), "{}\n").unwrap();
            folder.discard_unused();
            assert!(folder.is_run() && folder.path().join(name).exists(), "{name}");
            // After wrong input a step alone is of no use.
            folder.discard_without_checkpoint();
            assert_eq!(folder.is_run(), name != "steps.jsonl", "{name}");
        }
    }

    #[test]
    fn a_folder_that_another_job_writes_stays() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(place.path().join("run"), &Recipe::default()).unwrap();
        let written = folder.claimed(Candidate::alone());
        written.check().unwrap();
        let refused = RunFolder::at(folder.path().to_owned());
        refused.discard_unused();
        refused.discard_without_checkpoint();
        written.check().unwrap();
        assert!(folder.is_run());
        // The other job has ended without a step.
        drop(written);
        refused.discard_unused();
        assert!(!folder.path().exists());
    }
}
