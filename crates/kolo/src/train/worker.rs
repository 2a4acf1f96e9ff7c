//! One worker's run: epochs, steps, shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::Device;
use kolo_burn::data::{Batch, Dataset, Normalise, Prefetch, Request, open};
use kolo_burn::models::{self, ResNet};
use kolo_burn::{Ddp, DropoutKey, Loss};
use kolo_comm::Group;
use kolo_comm::elastic::Member;
use kolo_ddp::checkpoint::{self, Position};
use kolo_ddp::rate::Rate;
use kolo_ddp::{Change, Kind, Sampler, StepReport};

use super::checkpoints;
use super::config::TrainConfig;
use super::course::Course;
use super::desk::Desk;
use super::evaluate;
use super::folder::RunFolder;
use super::meter::{EpochRow, StepRow};
use super::signals;
use super::slow::{Slow, Work};
use super::summary::{Summary, peak_rss};
use crate::fail::Failure;

/// Batches prepared ahead.
const AHEAD: usize = 3;

/// How this worker belongs to its job.
pub(crate) enum Seat {
    /// For as long as the job lasts.
    Fixed(Group),
    /// With others that may come and go.
    Member(Member),
}

/// Runs this rank's part of a training. Rank 0 writes to the folder; on resume all ranks read from it.
pub(crate) fn train(
    seat: Seat,
    config: &TrainConfig,
    folder: Option<RunFolder>,
    resume: bool,
) -> Result<(), Failure> {
    let mut worker = Worker::new(seat, config, folder)?;
    // A worker that comes later finds the others on their way.
    let mut course = Course::at(worker.steps(), worker.sampler.steps());
    if let (0, true, Some(folder)) = (course.position.step, resume, &worker.folder) {
        course = Course::from(checkpoints::resume(&mut worker.ddp, folder)?);
        if course.position.step >= worker.total {
            let (path, total) = (folder.path().display(), worker.total);
            return Err(Failure::input(format!("the run in {path} is complete: all {total} steps are done")));
        }
    }
    let mut desk = None;
    worker.take_desk(&course, &mut desk, resume)?;
    worker.run(course, desk)
}

/// What every rank has.
struct Worker<'a> {
    config: &'a TrainConfig,
    folder: Option<RunFolder>,
    device: Device,
    dataset: Arc<Dataset>,
    sampler: Sampler,
    rate: Rate,
    total: u64,
    ddp: Ddp<ResNet>,
    criterion: CrossEntropyLoss,
    /// Set by SIGTERM.
    leaving: Arc<AtomicBool>,
}

/// What ends the work on an epoch.
#[derive(PartialEq)]
enum Pause {
    /// It is over, or the run is.
    Over,
    /// The members of the job have changed: batches have to be prepared anew.
    Regrouped,
    /// This worker has left the job.
    Left,
}

impl<'a> Worker<'a> {
    fn new(seat: Seat, config: &'a TrainConfig, folder: Option<RunFolder>) -> Result<Self, Failure> {
        let dataset = Arc::new(open(&config.data).map_err(Failure::input)?);
        let entry = models::find(&config.model).map_err(Failure::input)?;
        let device = Device::flex();
        let trainable = device.clone().autodiff();
        let shape = (entry.config)(dataset.train.channels, dataset.classes);
        let model = shape.init(config.seed, &trainable).with_dropout(config.dropout);
        let optimizer = &config.optimizer;
        let (name, settings) = (&optimizer.name, &optimizer.settings);
        let ddp = match seat {
            Seat::Fixed(group) => Ddp::new(group, model, &config.ddp(), name, settings)?,
            Seat::Member(member) => Ddp::elastic(member, model, &config.ddp(), name, settings)?,
        };
        let sampler = config.sampler(&dataset)?;
        let (rate, total) = (config.rate(&sampler), config.total_steps(&sampler));
        let criterion = CrossEntropyLossConfig::new().init(&trainable);
        let leaving = signals::leaving()?;
        Ok(Worker { config, folder, device, dataset, sampler, rate, total, ddp, criterion, leaving })
    }

    fn describe(&self) -> String {
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

    fn steps(&self) -> u64 {
        self.ddp.with_replica(|replica| replica.steps())
    }

    /// Whoever is rank 0 writes; that may have been another worker before.
    fn take_desk(&self, course: &Course, desk: &mut Option<Desk>, continued: bool) -> Result<(), Failure> {
        if self.ddp.rank().0 != 0 {
            *desk = None;
            return Ok(());
        }
        match (desk.as_mut(), &self.folder) {
            (Some(desk), _) => desk.rewind(course)?,
            (None, Some(folder)) => {
                let opened = Desk::open(folder.clone(), self.config, course, self.total, continued)?;
                opened.progress.say(&self.describe());
                *desk = Some(opened);
            }
            (None, None) => {}
        }
        let generation = self.ddp.with_replica(|replica| replica.generation().cloned());
        if let (Some(desk), Some(generation)) = (desk, generation) {
            desk.generations.begin(generation, self.ddp.group().world_size());
        }
        Ok(())
    }

    fn run(&mut self, mut course: Course, mut desk: Option<Desk>) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            match self.train(&mut course, &mut desk) {
                Ok(Pause::Over) => break,
                Ok(Pause::Left) => {
                    log::info!("this worker has left the job after step {}", course.position.step);
                    return Ok(());
                }
                Ok(Pause::Regrouped) => {}
                Err(failure) => self.ddp.recover(failure.into_cause()?)?,
            }
            course.go_to(self.steps(), self.sampler.steps());
            self.take_desk(&course, &mut desk, true)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        let peak_rss_bytes = peak_rss(self.ddp.group())?;
        let Some(desk) = desk.take() else { return Ok(()) };
        let whole = course.meter();
        let summary = Summary {
            kolo: env!("CARGO_PKG_VERSION"),
            world_size: self.ddp.group().world_size(),
            shards: self.config.shards,
            transport: self.ddp.group().transport(),
            model: self.config.model.clone(),
            data: self.config.data.clone(),
            parameters: parameters(&self.ddp),
            epochs: course.epochs(),
            steps: course.position.step,
            train_seconds: seconds,
            images_per_second: whole.images_per_second(),
            step_seconds_p50: whole.step_percentile(50.0),
            step_seconds_p95: whole.step_percentile(95.0),
            comm_fraction: whole.comm_fraction(),
            exposed_comm_fraction: whole.exposed_comm_fraction(),
            train_loss: course.train_loss,
            test_accuracy: course.test_accuracy,
            weights_sha256: self.ddp.with_replica(checkpoint::weights_sha256)?,
            peak_rss_bytes,
        };
        desk.report(&summary)
    }

    /// Trains until the run is over or the members of the job have changed.
    fn train(&mut self, course: &mut Course, desk: &mut Option<Desk>) -> Result<Pause, Failure> {
        loop {
            if course.is_unrecorded(self.total) {
                self.record(course, desk)?;
            }
            if course.position.step >= self.total {
                return Ok(Pause::Over);
            }
            match self.epoch(course, desk)? {
                Pause::Over => {}
                pause => return Ok(pause),
            }
        }
    }

    /// After an epoch, or after the last step.
    fn record(&mut self, course: &mut Course, desk: &mut Option<Desk>) -> Result<(), Failure> {
        let test_accuracy = evaluate::accuracy(&self.ddp, &self.dataset, &self.device)?;
        let epoch = course.epoch_meter().clone();
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
        course.recorded(&row);
        let Some(desk) = desk else { return Ok(()) };
        desk.record(&row);
        if course.position.step == self.total || desk.checkpoints.due_between_epochs(&course.position) {
            desk.checkpoints.take(&self.ddp, &mut course.position, &epoch)?;
        }
        Ok(())
    }

    /// Trains until the epoch or the run is over, or the members of the job have changed; moves the position.
    fn epoch(&mut self, course: &mut Course, desk: &mut Option<Desk>) -> Result<Pause, Failure> {
        let steps = self.sampler.steps();
        let (epoch, first) = (course.position.epoch, course.position.step_in_epoch);
        let mut batches = self.batches(epoch, first..steps)?;
        for _ in first..steps {
            let step = course.position.step;
            if step >= self.total {
                break;
            }
            let began = Instant::now();
            let rate = self.rate.at(step);
            if self.leaving.load(Ordering::Relaxed) {
                self.ddp.with_replica(|replica| replica.leave());
            }
            let report = self.step(&mut batches, &course.position, rate)?;
            if !report.loss.is_finite() {
                let loss = report.loss;
                return Err(Failure::work(format!(
                    "the loss is {loss} at step {step}: training has diverged; lower --lr, or clip with --clip-norm"
                )));
            }
            let row = StepRow::new(step, epoch, rate, began.elapsed(), &report);
            course.add(row.clone(), steps);
            if report.shards_changed && course.position.step_in_epoch > 0 {
                batches = self.batches(epoch, course.position.step_in_epoch..steps)?;
            }
            if let Some(desk) = desk {
                desk.steps.add(&row.json()?);
                if report.change == Change::None {
                    desk.generations.step_done(step)?;
                }
                desk.buckets.add(&report.buckets);
                desk.progress.step(&row, course.epoch_meter());
                let goes_on = course.position.step_in_epoch > 0 && course.position.step < self.total;
                if goes_on && desk.checkpoints.due_within_epoch(&course.position) {
                    desk.steps.flush();
                    let meter = course.epoch_meter().clone();
                    desk.checkpoints.take(&self.ddp, &mut course.position, &meter)?;
                }
            }
            match report.change {
                Change::None => {}
                Change::Regrouped => return Ok(Pause::Regrouped),
                Change::Left => return Ok(Pause::Left),
            }
        }
        Ok(Pause::Over)
    }

    fn step(
        &mut self,
        batches: &mut Prefetch,
        position: &Position,
        rate: f64,
    ) -> Result<StepReport, Failure> {
        for shard in self.ddp.shards() {
            let asked = Instant::now();
            let batch = batches.next().ok_or_else(|| Failure::work("the data ended before the epoch did"))?;
            self.ddp.data_waited(asked.elapsed());
            let (seed, epoch, step) = (self.config.seed, position.epoch, position.step_in_epoch);
            self.shard(batch.map_err(Failure::work)?, &DropoutKey { seed, epoch, step, shard })?;
        }
        Ok(self.ddp.step(rate)?)
    }

    fn shard(&mut self, batch: Batch, key: &DropoutKey) -> Result<(), Failure> {
        std::thread::sleep(Slow::pause(self.config.slow.as_ref(), self.ddp.rank().0, Work::Compute));
        let count = batch.len();
        if count == 0 {
            return Ok(self.ddp.skip_shard()?);
        }
        let (images, labels) = batch.into_tensors(&self.device.clone().autodiff());
        let loss = self.criterion.forward(self.ddp.model().forward_training(images, key), labels);
        Ok(self.ddp.backward(Loss::mean(loss, count))?)
    }

    /// This rank's batches of some steps of an epoch, prepared ahead.
    fn batches(&self, epoch: usize, steps: std::ops::Range<usize>) -> Result<Prefetch, Failure> {
        let order = Arc::new(self.sampler.epoch(epoch));
        let shards = self.ddp.shards();
        let requests = steps.flat_map(move |step| {
            let order = order.clone();
            let request =
                move |shard| Request { indices: order.shard(step, shard).to_vec(), epoch: epoch as u64 };
            shards.clone().map(request)
        });
        let augment = self.config.augment.then_some((self.config.seed, self.dataset.augment));
        let (dataset, normalise) = (self.dataset.clone(), Normalise::of(&self.dataset));
        let pause = Slow::pause(self.config.slow.as_ref(), self.ddp.rank().0, Work::Data);
        let prepare = move |Request { indices, epoch }| {
            std::thread::sleep(pause);
            let key = augment.map(|(seed, augment)| kolo_burn::data::AugmentKey { seed, epoch, augment });
            dataset.train.batch(&indices, &normalise, key.as_ref())
        };
        Prefetch::new(requests, AHEAD, prepare).map_err(Failure::work)
    }
}

/// Trained parameters of the model.
fn parameters(ddp: &Ddp<ResNet>) -> usize {
    let trained = ddp.layout().spans().iter().filter(|span| span.spec.kind != Kind::Statistic);
    trained.map(|span| span.len).sum()
}
