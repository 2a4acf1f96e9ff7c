//! A whole run, as read from its folder.

use std::path::{Path, PathBuf};

use crate::buckets::{self, BucketRow};
use crate::changes::ChangeRow;
use crate::csv::NumberTable;
use crate::epochs;
use crate::error::Error;
use crate::generations::GenerationRow;
use crate::lines::rows;
use crate::ranks::RanksRow;
use crate::settings::Settings;
use crate::steps::{self, StepRow};
use crate::summary::{self, Summary};

/// Name of the table that a learning-rate range test leaves in place of all that a training writes.
pub const RANGE_TABLE: &str = "learning-rates.csv";
/// Name of the picture of that table.
pub const RANGE_PICTURE: &str = "learning-rates.svg";

/// A run of `kolo train`, or of your own trainer.
#[derive(Clone, Debug)]
pub struct Run {
    /// Folder from which the run was read.
    pub folder: PathBuf,
    /// Name of the run: the folder's name.
    pub name: String,
    /// `config.toml`.
    pub settings: Settings,
    /// `steps.jsonl`, by number.
    pub steps: Vec<StepRow>,
    /// Unit that the loss counts, such as `images`.
    pub unit: String,
    /// `metrics.csv`: one row per epoch.
    pub epochs: NumberTable,
    /// `buckets.csv`.
    pub buckets: Vec<BucketRow>,
    /// `ranks.jsonl`; empty if the ranks have not compared their times.
    pub ranks: Vec<RanksRow>,
    /// `generations.jsonl`; empty if the job was not elastic.
    pub generations: Vec<GenerationRow>,
    /// `changes.jsonl`; empty if the run kept its settings.
    pub changes: Vec<ChangeRow>,
    /// `summary.json`, which only a run has that has done its last step.
    pub summary: Option<Summary>,
    /// Sentences about missing or incomplete files.
    pub remarks: Vec<String>,
}

impl Run {
    /// Reads a run folder, while the run goes on or later.
    ///
    /// # Errors
    ///
    /// The folder does not belong to a run, or a file in it cannot be read or understood.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        if !folder.is_dir() {
            return Err(Error::NoFolder { folder: folder.to_owned() });
        }
        let settings = Settings::read(folder)?;
        let steps = steps::read(folder)?;
        let mut remarks = steps.remarks;
        let (epochs, about_epochs) = epochs::read(folder)?;
        let (buckets, about_buckets) = buckets::read(folder)?;
        let (ranks, about_ranks) = rows(folder)?;
        let (generations, about_generations) = rows(folder)?;
        let (changes, about_changes) = rows(folder)?;
        let about = [about_epochs, about_buckets, about_ranks, about_generations, about_changes];
        remarks.extend(about.into_iter().flatten());
        let summary = summary::read(folder)?;
        remarks.extend(summary.as_ref().and_then(|summary| without_checkpoint(folder, summary)));
        if summary.is_none() {
            remarks.push("There is no summary.json: the run is still training, or has ended early.".into());
        }
        let unit = steps.unit.or_else(|| unit_of(&epochs)).unwrap_or_else(|| "samples".into());
        let name = name_of(folder);
        Ok(Run {
            folder: folder.to_owned(),
            name,
            settings,
            steps: steps.rows,
            unit,
            epochs,
            buckets,
            ranks,
            generations,
            changes,
            summary,
            remarks,
        })
    }

    /// Number of workers: that at the end, or else of the last generation, or else at the start.
    pub fn world_size(&self) -> Option<usize> {
        let at_end = self.summary.as_ref().and_then(|summary| summary.world_size);
        let latest = || self.generations.last().map(|generation| generation.world_size);
        let given = || self.settings.number("nproc").map(|number| number as usize);
        at_end.or_else(latest).or_else(given)
    }
}

/// Says that the checkpoint of the last step is missing, which a full disk may have prevented.
fn without_checkpoint(folder: &Path, summary: &Summary) -> Option<String> {
    let (checkpoints, step) = (folder.join("checkpoints"), summary.steps?);
    let is_missing = !checkpoints.join(format!("step-{step:08}")).exists();
    is_missing.then(|| {
        format!(
            "There is no checkpoint of the last step, {step}, whose weights summary.json describes; `kolo train --resume` \
             continues from the one before, if there is one."
        )
    })
}

/// Finds the unit in the name of a column such as `images_per_second`.
fn unit_of(epochs: &NumberTable) -> Option<String> {
    epochs.names.iter().find_map(|name| name.strip_suffix("_per_second")).map(Into::into)
}

/// The last named part of a folder's path.
fn name_of(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    whole.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_has_only_its_settings_is_a_run_that_begins() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.toml"), "nproc = 3\n").unwrap();
        let run = Run::read(folder.path()).unwrap();
        assert_eq!((run.world_size(), run.unit.as_str(), run.remarks.len()), (Some(3), "samples", 4));
        std::fs::write(folder.path().join("metrics.csv"), "epoch,tokens_per_second\n1,2.5\n").unwrap();
        assert_eq!(Run::read(folder.path()).unwrap().unit, "tokens");
    }

    #[test]
    fn a_summary_without_its_checkpoint_is_remarked() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("config.toml", "nproc = 1\n");
        write("summary.json", "{ \"steps\": 7 }");
        let remarks = || {
            let run = Run::read(folder.path()).unwrap();
            run.remarks
                .into_iter()
                .filter(|remark| remark.contains("checkpoint of the last step, 7,"))
                .count()
        };
        std::fs::create_dir_all(folder.path().join("checkpoints/step-00000006")).unwrap();
        assert_eq!(remarks(), 1);
        std::fs::create_dir(folder.path().join("checkpoints/step-00000007")).unwrap();
        assert_eq!(remarks(), 0);
    }

    #[test]
    fn other_folders_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let error = Run::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is no run folder") && error.contains("config.toml"), "{error}");
        let error = Run::read(&folder.path().join("nowhere")).unwrap_err().to_string();
        assert!(error.starts_with("no run folder") && error.ends_with("nowhere"), "{error}");
    }
}
