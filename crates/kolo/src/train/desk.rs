//! What rank 0 has besides: the run folder and the user.

use std::path::Path;

use super::checkpoints::Checkpoints;
use super::config::TrainConfig;
use super::course::Course;
use super::folder::RunFolder;
use super::generations::Generations;
use super::lines::Lines;
use super::meter::{BucketMeter, EpochRow};
use super::progress::Progress;
use super::summary::Summary;
use crate::fail::Failure;

/// See the module's text.
pub(super) struct Desk {
    folder: RunFolder,
    pub(super) steps: Lines,
    epochs: Lines,
    pub(super) generations: Generations,
    pub(super) progress: Progress,
    pub(super) buckets: BucketMeter,
    pub(super) checkpoints: Checkpoints,
}

impl Desk {
    /// `continued`: the folder may hold lines of steps that will be done again, or lack some that are done.
    pub(super) fn open(
        folder: RunFolder,
        config: &TrainConfig,
        course: &Course,
        total: u64,
        continued: bool,
    ) -> Result<Self, Failure> {
        folder.await_there()?;
        let progress = Progress::new(course.position.step, total, config.epochs);
        let (steps, epochs) = (folder.step_log()?, folder.epoch_log()?);
        let generations = Generations::new(folder.generation_log());
        let (buckets, checkpoints) = (BucketMeter::default(), Checkpoints::open(&folder, config)?);
        let mut desk = Desk { folder, steps, epochs, generations, progress, buckets, checkpoints };
        if continued {
            desk.rewind(course)?;
            let (path, step) = (desk.folder.path().display().to_string(), course.position.step);
            desk.progress.say(&format!("continuing {path} after step {step}"));
        }
        Ok(desk)
    }

    /// Forgets what is written of steps that will be done again, and adds what a dead rank 0 has not come to write.
    pub(super) fn rewind(&mut self, course: &Course) -> Result<(), Failure> {
        self.folder.await_there()?;
        self.steps.flush();
        self.epochs.flush();
        self.folder.rewind(&course.position)?;
        let last = self.folder.last_step()?;
        for row in course.rows().iter().filter(|row| last.is_none_or(|last| row.step > last)) {
            self.steps.add(&row.json()?);
        }
        Ok(())
    }

    /// After an epoch. What cannot be written now is tried again later.
    pub(super) fn record(&mut self, row: &EpochRow) {
        self.epochs.add(&row.csv());
        self.epochs.flush();
        self.steps.flush();
        if let Err(error) = self.folder.write_buckets(&self.buckets.rows()) {
            log::warn!("{error}; training goes on and tries again later");
        }
        self.progress.epoch(row);
    }

    /// At the end of the run.
    pub(super) fn report(self, summary: &Summary) -> Result<(), Failure> {
        let Desk { folder, steps, epochs, generations, progress, buckets, checkpoints } = self;
        let files = [
            steps.end(),
            epochs.end(),
            generations.end(),
            folder.write_buckets(&buckets.rows()),
            folder.write_summary(summary).map(drop),
        ];
        progress.end();
        let path: &Path = folder.path();
        println!("test accuracy   {:.2} %", 100.0 * summary.test_accuracy);
        println!("train loss      {:.4}", summary.train_loss);
        println!("training time   {:.1} s, {:.0} images/s", summary.train_seconds, summary.images_per_second);
        println!(
            "communication   {:.1} % of the work, {:.1} % of the time waited for",
            100.0 * summary.comm_fraction,
            100.0 * summary.exposed_comm_fraction
        );
        println!("weights         sha256 {}", summary.weights_sha256);
        println!("run folder      {}", path.display());
        // All that can be written is, before the first failure ends the run.
        let checkpoint = checkpoints.finish();
        files.into_iter().collect::<Result<(), Failure>>()?;
        checkpoint
    }
}
