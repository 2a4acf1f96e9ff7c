//! What rank 0 has besides: the run folder and the user.

use std::path::Path;

use crate::models::ResNet;
use kolo_burn::Ddp;
use kolo_ddp::BucketTiming;

use crate::checkpoints::Checkpoints;
use crate::config::TrainConfig;
use crate::course::Course;
use crate::error::Error;
use crate::folder::RunFolder;
use crate::generations::Generations;
use crate::lines::Lines;
use crate::meter::{BucketMeter, EpochRow, StepRow};
use crate::progress::Progress;
use crate::summary::Summary;

/// Steps between two tries to mend the files.
const EVERY: u64 = 50;

/// See the module's text.
pub(crate) struct Desk {
    folder: RunFolder,
    steps: Lines,
    epochs: Lines,
    /// The files may hold lines of steps that will be done again, or lack some that a dead rank 0 has not
    /// come to write. Until that is mended nothing is added to them: the course knows all that is missing.
    behind: bool,
    pub(crate) generations: Generations,
    pub(crate) progress: Progress,
    buckets: BucketMeter,
    pub(crate) checkpoints: Checkpoints,
}

impl Desk {
    pub(crate) fn new(folder: RunFolder, config: &TrainConfig, course: &Course, total: u64) -> Self {
        Desk {
            steps: folder.step_log(),
            epochs: folder.epoch_log(),
            behind: false,
            generations: Generations::new(folder.generation_log()),
            progress: Progress::new(course.position.step, total, config.epochs),
            buckets: BucketMeter::default(),
            checkpoints: Checkpoints::new(&folder, config),
            folder,
        }
    }

    /// Before the first step, where a folder that cannot be written to ends the run. `continued`: it holds an
    /// earlier part of it.
    pub(crate) fn begin(&mut self, course: &Course, continued: bool) -> Result<(), Error> {
        self.steps.make()?;
        self.epochs.make()?;
        self.checkpoints.open()?;
        if continued { self.align(course) } else { Ok(()) }
    }

    /// Goes on where the course is, after others may have written. What is in the way is told and tried again
    /// later.
    pub(crate) fn follow(&mut self, course: &Course) {
        self.behind = true;
        self.mend(course);
    }

    fn mend(&mut self, course: &Course) {
        if self.behind {
            match self.align(course) {
                Ok(()) => self.behind = false,
                Err(failure) => log::warn!("{failure}; training goes on and tries again later"),
            }
        }
    }

    /// Makes the files hold what the course says.
    fn align(&mut self, course: &Course) -> Result<(), Error> {
        self.steps.forget();
        self.epochs.forget();
        self.folder.rewind(course.position.step, course.recorded().1)?;
        let (step, epoch) = (self.folder.last_step()?, self.folder.last_epoch()?);
        for row in course.rows().iter().filter(|row| step.is_none_or(|last| row.step > last)) {
            self.steps.add(&row.json()?);
        }
        let records = course.records().iter();
        records
            .filter(|row| epoch.is_none_or(|last| row.epoch > last))
            .for_each(|row| self.epochs.add(&row.csv()));
        Ok(())
    }

    /// After a step, which is the course's last.
    pub(crate) fn step(
        &mut self,
        row: &StepRow,
        buckets: &[BucketTiming],
        course: &Course,
    ) -> Result<(), Error> {
        if !self.behind {
            self.steps.add(&row.json()?);
        } else if row.step.is_multiple_of(EVERY) {
            self.mend(course);
        }
        self.buckets.add(buckets);
        self.progress.step(row, course.epoch_meter());
        Ok(())
    }

    /// Writes what waits. What cannot be written now is tried again later.
    pub(crate) fn flush(&mut self, course: &Course) {
        self.mend(course);
        if !self.behind {
            self.steps.flush();
            self.epochs.flush();
        }
    }

    /// After an epoch, whose row is the course's last.
    pub(crate) fn record(&mut self, row: &EpochRow, course: &Course) {
        if !self.behind {
            self.epochs.add(&row.csv());
        }
        self.flush(course);
        if let Err(error) = self.folder.write_buckets(&self.buckets.rows()) {
            log::warn!("{error}; training goes on and tries again later");
        }
        self.progress.epoch(row);
    }

    /// Where the run ends early: writes all that there is, and a checkpoint to go on from.
    pub(crate) fn keep(mut self, ddp: &Ddp<ResNet>, course: &Course) -> Result<(), Error> {
        self.flush(course);
        self.checkpoints.take(ddp, course)?;
        self.progress.end();
        self.checkpoints.finish()
    }

    /// At the end of the run.
    pub(crate) fn report(mut self, summary: &Summary, course: &Course) -> Result<(), Error> {
        let mended = if self.behind { self.align(course) } else { Ok(()) };
        let Desk { folder, steps, epochs, generations, progress, buckets, checkpoints, .. } = self;
        // The summary comes last: it says that nothing is missing.
        let checkpoint = checkpoints.finish();
        let files = [
            mended,
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
        files.into_iter().collect::<Result<(), Error>>()?;
        checkpoint
    }
}
