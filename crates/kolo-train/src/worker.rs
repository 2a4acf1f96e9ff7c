//! One worker's run: its place in the job, the epochs, the end. What it does with the others can be done
//! again after one of them has died.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::models::{self, ResNet};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::Device;
use kolo_burn::Ddp;
use kolo_comm::Group;
use kolo_data::{Dataset, open};
use kolo_ddp::Sampler;
use kolo_ddp::optimizer;
use kolo_ddp::rate::Rate;
use kolo_ddp::table::Choice;
use kolo_elastic::Member;

use crate::config::TrainConfig;
use crate::course::Course;
use crate::desk::Desk;
use crate::error::Error;
use crate::evaluate;
use crate::folder::RunFolder;
use crate::meter::EpochRow;
use crate::signals;
use crate::summary::{parameters, peak_rss};

/// How this worker belongs to its job.
pub enum Seat {
    /// For as long as the job lasts.
    Fixed(Group),
    /// With others that may come and go.
    Member(Member),
}

/// Runs this rank's part of a training. Rank 0 writes to the folder; on resume all ranks read from it.
///
/// # Errors
///
/// The run cannot be made as it is configured, a step failed, or it has ended before its last step.
pub fn train(seat: Seat, config: &TrainConfig, folder: Option<RunFolder>, resume: bool) -> Result<(), Error> {
    let complete = folder.clone();
    match Worker::new(seat, config, folder, resume) {
        Ok(mut worker) => worker.run(),
        // It was started in place of one that died at the very end, and the others have come to it.
        Err(Error::Training(kolo_burn::Error::Ddp(kolo_ddp::Error::Comm(kolo_comm::Error::Orphaned))))
            if complete.is_some_and(|folder| folder.is_complete()) =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// What every rank has.
pub(crate) struct Worker<'a> {
    pub(crate) config: &'a TrainConfig,
    pub(crate) folder: Option<RunFolder>,
    /// Whether the folder holds an earlier part of the run.
    pub(crate) resume: bool,
    pub(crate) device: Device,
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) sampler: Sampler,
    pub(crate) rate: Rate,
    pub(crate) total: u64,
    pub(crate) ddp: Ddp<ResNet>,
    pub(crate) criterion: CrossEntropyLoss,
    /// Set by SIGTERM.
    pub(crate) leaving: Arc<AtomicBool>,
    /// When the step that runs, or the last one, began.
    pub(crate) began: Instant,
    /// Why the job ends before the run, where it is not by SIGTERM.
    pub(crate) reason: Option<String>,
}

/// What ends the work with the ranks that there are.
pub(crate) enum Pause {
    /// The run is over.
    Over {
        /// The largest of all workers.
        peak_rss_bytes: u64,
    },
    /// The members of the job have changed: batches have to be prepared anew.
    Regrouped,
    /// This worker has left the job.
    Left,
    /// All have.
    AllLeft,
}

impl<'a> Worker<'a> {
    fn new(
        seat: Seat,
        config: &'a TrainConfig,
        folder: Option<RunFolder>,
        resume: bool,
    ) -> Result<Self, Error> {
        let dataset = Arc::new(open(&config.data)?);
        let entry = models::find(&config.model)?;
        let device = Device::flex();
        let trainable = device.clone().autodiff();
        let shape = (entry.config)(dataset.train.channels, dataset.classes);
        let model = shape.init(config.seed, &trainable).with_dropout(config.dropout);
        let Choice { name, settings } = &config.optimizer;
        let optimizer = optimizer::named(name, settings)?;
        let (ddp, leaving) = match seat {
            // Without the others it could not go on, nor they without it: SIGTERM ends it.
            Seat::Fixed(group) => (Ddp::new(group, model, &config.ddp(), optimizer)?, Arc::default()),
            Seat::Member(member) => {
                (Ddp::elastic(member, model, &config.ddp(), optimizer)?, signals::leaving()?)
            }
        };
        let sampler = config.sampler(&dataset)?;
        let (rate, total) = (config.rate(&sampler), config.total_steps(&sampler));
        let criterion = CrossEntropyLossConfig::new().init(&trainable);
        let began = Instant::now();
        Ok(Worker {
            config,
            folder,
            resume,
            device,
            dataset,
            sampler,
            rate,
            total,
            ddp,
            criterion,
            leaving,
            began,
            reason: None,
        })
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{} ({} parameters) on {}: {} workers over {}, {} shards × {} images a step, {} steps",
            self.config.model,
            parameters(&self.ddp),
            self.config.data,
            self.ddp.group().world_size(),
            self.ddp.group().transport(),
            self.config.shards,
            self.config.batch_size,
            self.total,
        )
    }

    pub(crate) fn steps(&self) -> u64 {
        self.ddp.with_replica(|replica| replica.steps())
    }

    fn run(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        // A worker that comes later finds the others on their way.
        let mut course = Course::at(self.steps(), self.sampler.steps(), self.total);
        let (mut desk, mut begins) = (None, true);
        loop {
            match self.go_on(&mut course, &mut desk, begins) {
                Ok(Pause::Over { peak_rss_bytes }) => {
                    let seconds = started.elapsed().as_secs_f64();
                    let told = desk.take().map_or(Ok(()), |desk| {
                        desk.report(&self.summary(&course, peak_rss_bytes, seconds)?, &course)
                    });
                    match self.part() {
                        Ok(()) => return told,
                        Err(failure) => drop(self.carry_on(failure, &mut course, &mut desk)?),
                    }
                }
                Ok(Pause::Left) => {
                    log::info!("this worker has left the job after step {}", course.position.step);
                    return Ok(());
                }
                Ok(Pause::AllLeft) => return self.end_early(&course, desk),
                Ok(Pause::Regrouped) => {}
                Err(failure) => {
                    if self.carry_on(failure, &mut course, &mut desk)? {
                        return self.end_early(&course, desk);
                    }
                }
            }
            begins = false;
        }
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
        failure: Error,
        course: &mut Course,
        desk: &mut Option<Desk>,
    ) -> Result<bool, Error> {
        if !self.recover(failure)? {
            return Ok(false);
        }
        self.find_place(course)?;
        // Where nothing but the summary is missing it can be made alone.
        if course.is_over() && !course.is_unrecorded() {
            return Ok(false);
        }
        self.take_desk(course, desk, false)?;
        Ok(true)
    }

    /// Goes on from where the ranks are, until the run is over or their number changes. `begins`: for the
    /// first time.
    fn go_on(&mut self, course: &mut Course, desk: &mut Option<Desk>, begins: bool) -> Result<Pause, Error> {
        self.find_place(course)?;
        course.share(self.ddp.group())?;
        self.take_desk(course, desk, begins)?;
        loop {
            if course.is_unrecorded() {
                self.record(course, desk)?;
            }
            if course.is_over() {
                break;
            }
            if let Some(pause) = self.epoch(course, desk)? {
                return Ok(pause);
            }
        }
        Ok(Pause::Over { peak_rss_bytes: peak_rss(self.ddp.group())? })
    }

    /// After an epoch, or after the last step. A collective.
    fn record(&mut self, course: &mut Course, desk: &mut Option<Desk>) -> Result<(), Error> {
        let test_accuracy = evaluate::accuracy(&self.ddp, &self.dataset, &self.device)?;
        let epoch = course.epoch_meter();
        let row = EpochRow {
            epoch: course.epochs(),
            seconds_per_step: epoch.seconds_per_step(),
            images_per_second: epoch.images_per_second(),
            comm_fraction: epoch.comm_fraction(),
            exposed_comm_fraction: epoch.exposed_comm_fraction(),
            train_loss: epoch.train_loss(),
            test_accuracy,
            learning_rate: self.rate.at(course.position.step - 1),
        };
        course.record(row.clone());
        let Some(desk) = desk else { return Ok(()) };
        desk.record(&row, course);
        if course.is_over() || desk.checkpoints.due_between_epochs(&course.position) {
            desk.checkpoints.take(&self.ddp, course)?;
        }
        Ok(())
    }
}
