//! One worker's run: epochs, steps, shards.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::Device;
use kolo_burn::data::{Batch, Dataset, Normalise, Prefetch, Request, open};
use kolo_burn::models::{self, ResNet};
use kolo_burn::{Ddp, DropoutKey, Loss};
use kolo_comm::Group;
use kolo_ddp::checkpoint::{self, Position};
use kolo_ddp::rate::Rate;
use kolo_ddp::{Kind, Sampler, StepReport};

use super::checkpoints::{self, Checkpoints};
use super::config::TrainConfig;
use super::evaluate;
use super::folder::RunFolder;
use super::lines::Lines;
use super::meter::{BucketMeter, EpochRow, Meter, StepRow};
use super::progress::Progress;
use super::slow::{Slow, Work};
use super::summary::{Summary, peak_rss};
use crate::fail::Failure;

/// Batches prepared ahead.
const AHEAD: usize = 3;

/// Runs this rank's part of a training. Rank 0 gets the folder and writes to it; on resume all ranks read from it.
pub(crate) fn train(
    group: Group,
    config: &TrainConfig,
    folder: Option<RunFolder>,
    resume: bool,
) -> Result<(), Failure> {
    let mut worker = Worker::new(group, config)?;
    let mut start = Position { step: 0, epoch: 0, step_in_epoch: 0, notes: serde_json::Value::Null };
    if let (true, Some(folder)) = (resume, &folder) {
        start = checkpoints::resume(&mut worker.ddp, folder)?;
        if start.step >= worker.total {
            let (path, total) = (folder.path().display(), worker.total);
            return Err(Failure::input(format!("the run in {path} is complete: all {total} steps are done")));
        }
    }
    let mut desk = match folder.filter(|_| worker.rank == 0) {
        Some(folder) => Some(Desk::open(folder, &worker, &start, resume)?),
        None => None,
    };
    worker.run(start, &mut desk)
}

/// What every rank has.
struct Worker<'a> {
    config: &'a TrainConfig,
    rank: usize,
    device: Device,
    dataset: Arc<Dataset>,
    sampler: Sampler,
    rate: Rate,
    total: u64,
    ddp: Ddp<ResNet>,
    criterion: CrossEntropyLoss,
}

/// What rank 0 has besides: the run folder and the user.
struct Desk {
    folder: RunFolder,
    steps: Lines,
    epochs: Lines,
    progress: Progress,
    buckets: BucketMeter,
    checkpoints: Checkpoints,
}

impl Desk {
    fn open(folder: RunFolder, worker: &Worker<'_>, start: &Position, resume: bool) -> Result<Self, Failure> {
        if resume {
            folder.rewind(start)?;
        }
        let progress = Progress::new(start.step, worker.total, worker.config.epochs);
        progress.say(&worker.describe());
        if resume {
            progress.say(&format!("continuing {} after step {}", folder.path().display(), start.step));
        }
        let (steps, epochs) = (folder.step_log()?, folder.epoch_log()?);
        let checkpoints = Checkpoints::open(&folder, worker.config)?;
        Ok(Desk { folder, steps, epochs, progress, buckets: BucketMeter::default(), checkpoints })
    }

    /// After an epoch. What cannot be written now is tried again later.
    fn record(&mut self, row: &EpochRow) {
        self.epochs.add(&row.csv());
        self.epochs.flush();
        self.steps.flush();
        if let Err(error) = self.folder.write_buckets(&self.buckets.rows()) {
            log::warn!("{error}; training goes on and tries again later");
        }
        self.progress.epoch(row);
    }
}

impl<'a> Worker<'a> {
    fn new(group: Group, config: &'a TrainConfig) -> Result<Self, Failure> {
        let rank = group.rank().0;
        let dataset = Arc::new(open(&config.data).map_err(Failure::input)?);
        let entry = models::find(&config.model).map_err(Failure::input)?;
        let device = Device::flex();
        let trainable = device.clone().autodiff();
        let shape = (entry.config)(dataset.train.channels, dataset.classes);
        let model = shape.init(config.seed, &trainable).with_dropout(config.dropout);
        let optimizer = &config.optimizer;
        let ddp = Ddp::new(group, model, &config.ddp(), &optimizer.name, &optimizer.settings)?;
        let sampler = config.sampler(&dataset)?;
        let (rate, total) = (config.rate(&sampler), config.total_steps(&sampler));
        let criterion = CrossEntropyLossConfig::new().init(&trainable);
        Ok(Worker { config, rank, device, dataset, sampler, rate, total, ddp, criterion })
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

    fn run(&mut self, start: Position, desk: &mut Option<Desk>) -> Result<(), Failure> {
        let started = Instant::now();
        let mut whole = Meter::default();
        let (mut train_loss, mut test_accuracy, mut epochs) = (0.0, 0.0, start.epoch);
        let mut position = start;
        while position.step < self.total {
            let epoch = self.epoch(&mut position, &mut whole, desk)?;
            test_accuracy = evaluate::accuracy(&self.ddp, &self.dataset, &self.device)?;
            train_loss = epoch.train_loss();
            epochs = position.epoch + usize::from(position.step_in_epoch > 0);
            if let Some(desk) = desk {
                let row = EpochRow {
                    epoch: epochs,
                    seconds_per_step: epoch.seconds_per_step(),
                    images_per_second: epoch.images_per_second(),
                    comm_fraction: epoch.comm_fraction(),
                    exposed_comm_fraction: epoch.exposed_comm_fraction(),
                    train_loss,
                    test_accuracy,
                    learning_rate: self.rate.at(position.step - 1),
                };
                desk.record(&row);
                if position.step == self.total || desk.checkpoints.due_between_epochs(&position) {
                    desk.checkpoints.take(&self.ddp, &mut position, &epoch)?;
                }
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let peak_rss_bytes = peak_rss(self.ddp.group())?;
        let Some(desk) = desk.take() else { return Ok(()) };
        let summary = Summary {
            kolo: env!("CARGO_PKG_VERSION"),
            world_size: self.ddp.group().world_size(),
            shards: self.config.shards,
            transport: self.ddp.group().transport(),
            model: self.config.model.clone(),
            data: self.config.data.clone(),
            parameters: parameters(&self.ddp),
            epochs,
            steps: position.step,
            train_seconds: seconds,
            images_per_second: whole.images_per_second(),
            step_seconds_p50: whole.step_percentile(50.0),
            step_seconds_p95: whole.step_percentile(95.0),
            comm_fraction: whole.comm_fraction(),
            exposed_comm_fraction: whole.exposed_comm_fraction(),
            train_loss,
            test_accuracy,
            weights_sha256: self.ddp.with_replica(checkpoint::weights_sha256)?,
            peak_rss_bytes,
        };
        report(desk, &summary)
    }

    /// Trains until the epoch or the run is over; moves the position.
    fn epoch(
        &mut self,
        position: &mut Position,
        whole: &mut Meter,
        desk: &mut Option<Desk>,
    ) -> Result<Meter, Failure> {
        let mut meter = checkpoints::meter(position);
        let steps = self.sampler.steps();
        let mut batches = self.batches(position.epoch, position.step_in_epoch..steps)?;
        while position.step_in_epoch < steps && position.step < self.total {
            let began = Instant::now();
            let rate = self.rate.at(position.step);
            let report = self.step(&mut batches, position, rate)?;
            if !report.loss.is_finite() {
                let (loss, step) = (report.loss, position.step);
                return Err(Failure::work(format!(
                    "the loss is {loss} at step {step}: training has diverged; lower --lr, or clip with --clip-norm"
                )));
            }
            let row = StepRow::new(position.step, position.epoch, rate, began.elapsed(), &report);
            position.step += 1;
            position.step_in_epoch += 1;
            if report.shards_changed {
                batches = self.batches(position.epoch, position.step_in_epoch..steps)?;
            }
            meter.add(&row);
            whole.add(&row);
            if let Some(desk) = desk {
                desk.steps.add(&row.json()?);
                desk.buckets.add(&report.buckets);
                desk.progress.step(&row, &meter);
                let goes_on = position.step_in_epoch < steps && position.step < self.total;
                if goes_on && desk.checkpoints.due_within_epoch(position) {
                    desk.steps.flush();
                    desk.checkpoints.take(&self.ddp, position, &meter)?;
                }
            }
        }
        if position.step_in_epoch == steps {
            (position.epoch, position.step_in_epoch) = (position.epoch + 1, 0);
        }
        Ok(meter)
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
        std::thread::sleep(Slow::pause(self.config.slow.as_ref(), self.rank, Work::Compute));
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
        let pause = Slow::pause(self.config.slow.as_ref(), self.rank, Work::Data);
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

fn report(desk: Desk, summary: &Summary) -> Result<(), Failure> {
    let Desk { folder, steps, epochs, progress, buckets, checkpoints } = desk;
    let files = [
        steps.end(),
        epochs.end(),
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
