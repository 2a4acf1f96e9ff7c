//! One worker's run: its start, the epochs, the end. What it does with the others can be done again after one
//! of them has died.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use burn::tensor::Device;
use kolo_burn::Ddp;
use kolo_ddp::Sampler;
use kolo_ddp::rate::Rate;

use crate::error::Error;
use crate::evaluate;
use crate::job::{Job, Membership};
use crate::meter::EpochRow;
use crate::model::{Blueprint, Model};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::run_writer::RunWriter;
use crate::signals;
use crate::sinks::Record;
use crate::summary::{Summary, parameters, peak_rss};

/// Runs this worker's part of a training. Rank 0 writes to the folder; if the run is resumed all ranks read
/// from it.
///
/// `build` must give every rank the same model. The summary is rank 0's; the others have none.
///
/// # Errors
///
/// The run cannot be made as it is configured, a step failed, or it has ended before its last step.
pub fn train<M: Model>(
    job: &Job,
    membership: Membership,
    build: impl FnOnce(&Blueprint<'_>) -> M,
) -> Result<Option<Summary>, Error> {
    match Worker::new(job, membership, build) {
        Ok(mut worker) => worker.run(),
        // It was started in place of one that died at the very end, and the others have come to it.
        Err(Error::Training(kolo_ddp::Error::Comm(kolo_comm::Error::Orphaned)))
            if job.folder.as_ref().is_some_and(|folder| folder.is_complete()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What every rank has.
pub(crate) struct Worker<'a, M> {
    pub(crate) job: &'a Job,
    /// The job's device with autodiff.
    pub(crate) trainable: Device,
    pub(crate) sampler: Sampler,
    pub(crate) rate: Rate,
    /// Steps of the whole run.
    pub(crate) total: u64,
    pub(crate) ddp: Ddp<M>,
    /// Set by SIGTERM.
    pub(crate) leaving: Arc<AtomicBool>,
    /// When the step that runs, or the last one, began.
    pub(crate) step_began: Instant,
    /// Why the job ends before the run, where it is not by SIGTERM.
    pub(crate) too_few: Option<String>,
}

impl<'a, M: Model> Worker<'a, M> {
    fn new(
        job: &'a Job,
        membership: Membership,
        build: impl FnOnce(&Blueprint<'_>) -> M,
    ) -> Result<Self, Error> {
        let config = &job.config;
        config.check()?;
        let trainable = job.device.clone().autodiff();
        let (seed, dropout, samples) = (config.seed, config.dropout, job.data.shape());
        let model = build(&Blueprint { seed, samples, dropout, device: &trainable });
        let optimizer = config.optimizer.build()?;
        let (ddp, leaving) = match membership {
            // Without the others it could not go on, nor they without it: SIGTERM ends it.
            Membership::Fixed(group) => (Ddp::new(group, model, &config.ddp()?, optimizer)?, Arc::default()),
            Membership::Elastic(member) => {
                (Ddp::elastic(member, model, &config.ddp()?, optimizer)?, signals::leaving()?)
            }
        };
        let sampler = config.sampler(&*job.data)?;
        let (rate, total) = (config.rate(&sampler), config.total_steps(&sampler));
        let step_began = Instant::now();
        Ok(Worker { job, trainable, sampler, rate, total, ddp, leaving, step_began, too_few: None })
    }

    pub(crate) fn describe(&self) -> String {
        let config = &self.job.config;
        format!(
            "{} ({} parameters) on {}: {} workers over {}, {} shards × {} images a step, {} steps",
            config.model,
            parameters(&self.ddp),
            config.data,
            self.ddp.group().world_size(),
            self.ddp.group().transport(),
            config.shards,
            config.batch_size,
            self.total,
        )
    }

    /// Steps that the replica has done.
    pub(crate) fn steps(&self) -> u64 {
        self.ddp.with_replica(|replica| replica.steps())
    }

    fn run(&mut self) -> Result<Option<Summary>, Error> {
        let started = Instant::now();
        // A worker that comes later finds the others on their way.
        let mut progress = Progress::at(self.steps(), self.sampler.steps(), self.total);
        let (mut writer, mut begins) = (None, true);
        loop {
            match self.go_on(&mut progress, &mut writer, begins) {
                Ok(Outcome::Over { peak_rss_bytes }) => {
                    let seconds = started.elapsed().as_secs_f64();
                    let ended = self.end(&progress, writer.take(), peak_rss_bytes, seconds);
                    match self.part() {
                        Ok(()) => return ended,
                        Err(error) => drop(self.carry_on(error, &mut progress, &mut writer)?),
                    }
                }
                Ok(Outcome::Left) => {
                    log::info!("this worker has left the job after step {}", progress.step());
                    return Ok(None);
                }
                Ok(Outcome::AllLeft) => return self.end_early(&progress, writer).map(|()| None),
                Ok(Outcome::Regrouped) => {}
                Err(error) => {
                    if self.carry_on(error, &mut progress, &mut writer)? {
                        return self.end_early(&progress, writer).map(|()| None);
                    }
                }
            }
            begins = false;
        }
    }

    /// Rank 0 sums up.
    fn end(
        &self,
        progress: &Progress,
        writer: Option<RunWriter>,
        peak_rss_bytes: u64,
        seconds: f64,
    ) -> Result<Option<Summary>, Error> {
        if self.ddp.rank().0 > 0 {
            return Ok(None);
        }
        let summary = Summary::of(&self.ddp, &self.job.config, progress, peak_rss_bytes, seconds)?;
        if let Some(writer) = writer {
            writer.end(&summary, progress)?;
        }
        Ok(Some(summary))
    }

    /// Where others can take rank 0's place nobody goes before it has written all.
    fn part(&self) -> Result<(), Error> {
        match self.ddp.with_replica(|replica| replica.generation().is_some()) {
            true => Ok(self.ddp.group().barrier()?),
            false => Ok(()),
        }
    }

    /// After a death: finds those who are left. True where it is alone and is to save what they have come to.
    fn carry_on(
        &mut self,
        error: Error,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
    ) -> Result<bool, Error> {
        if !self.recover(error)? {
            return Ok(false);
        }
        self.catch_up(progress)?;
        // Where nothing but the summary is missing it can be made alone.
        if progress.is_over() && !progress.is_unrecorded() {
            return Ok(false);
        }
        self.choose_writer(progress, writer, false)?;
        Ok(true)
    }

    /// Goes on from where the ranks are, until the run is over or their number changes. `begins`: for the
    /// first time.
    fn go_on(
        &mut self,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
        begins: bool,
    ) -> Result<Outcome, Error> {
        self.catch_up(progress)?;
        progress.synchronise(self.ddp.group())?;
        self.choose_writer(progress, writer, begins)?;
        loop {
            if progress.is_unrecorded() {
                self.record_epoch(progress, writer)?;
            }
            if progress.is_over() {
                break;
            }
            if let Some(outcome) = self.epoch(progress, writer)? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Over { peak_rss_bytes: peak_rss(self.ddp.group())? })
    }

    /// After an epoch, or after the last step. A collective.
    fn record_epoch(&mut self, progress: &mut Progress, writer: &mut Option<RunWriter>) -> Result<(), Error> {
        let test_accuracy = evaluate::accuracy(&self.ddp, &*self.job.data, &self.job.device)?;
        let epoch = progress.epoch_meter();
        let row = EpochRow {
            epoch: progress.epochs_begun(),
            seconds_per_step: epoch.seconds_per_step(),
            images_per_second: epoch.images_per_second(),
            comm_fraction: epoch.comm_fraction(),
            exposed_comm_fraction: epoch.exposed_comm_fraction(),
            train_loss: epoch.train_loss(),
            test_accuracy,
            learning_rate: self.rate.at(progress.step() - 1),
        };
        progress.add_epoch(row.clone());
        let Some(writer) = writer else { return Ok(()) };
        writer.record(&Record::Epoch(&row), progress);
        if progress.is_over() || writer.checkpoints.due_between_epochs(&progress.position) {
            writer.checkpoints.take(&self.ddp, progress)?;
        }
        Ok(())
    }
}
