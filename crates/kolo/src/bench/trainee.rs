//! A model in training on random images or texts, whose steps are measured.

use burn::tensor::Device;
use clap::Args;
use kolo::{Failure, Precision, with_precision};
use kolo_comm::Group;
use kolo_data::{BYTE_VOCABULARY, Batch, CONTEXT, SampleShape};
use kolo_ddp::optimizer::{self, Optimizer};
use kolo_ddp::table::Value;
use kolo_ddp::{Config, StepReport};
use kolo_models::{self as models, Blueprint, Stepper};
use kolo_recipe::PrecisionConfig;

use super::samples::at_least_1;

const CLASSES: usize = 10;

/// Options for the model and the images of a step.
#[derive(Args)]
pub(super) struct Work {
    /// Network
    #[arg(long, default_value = "resnet18")]
    pub(super) model: String,
    /// Images per worker, or windows of a text
    #[arg(long, default_value_t = 32)]
    pub(super) batch_size: usize,
    /// Height and width of the images, which have three channels
    #[arg(long, default_value_t = 32)]
    image_size: usize,
    /// Optimizer
    #[arg(long, default_value = "adamw")]
    optimizer: String,
    /// Type of convolutions and matrix products: f32, bf16 or f16
    #[arg(long, value_name = "TYPE", default_value = Precision::ALL[0].0)]
    pub(super) precision: String,
}

impl Work {
    pub(super) fn check(&self) -> Result<(), Failure> {
        models::find(&self.model)?;
        optimizer::find(&self.optimizer).map_err(Failure::input)?;
        self.precision()?;
        at_least_1(&[("--batch-size", self.batch_size), ("--image-size", self.image_size)])
    }

    /// True for a language model, whose samples are windows of a text of random bytes.
    pub(super) fn reads_text(&self) -> bool {
        models::find(&self.model).is_ok_and(|model| model.traits().reads_text)
    }

    /// Loss scaling, which f16 needs for training, changes no figure here.
    fn precision(&self) -> Result<Precision, Failure> {
        let config = PrecisionConfig { compute: self.precision.clone(), ..PrecisionConfig::default() };
        Ok(kolo_burn_train::precision(&config)?)
    }

    fn optimizer(&self) -> Result<Box<dyn Optimizer>, Failure> {
        let entry = optimizer::find(&self.optimizer).map_err(Failure::input)?;
        let decay = entry.setting("weight_decay").map(|setting| (setting.name.into(), Value::Number(1e-4)));
        entry.build(&decay.into_iter().collect()).map_err(Failure::input)
    }
}

/// A model in training, and the images of this rank.
pub(super) struct Trainee {
    pub(super) stepper: Box<dyn Stepper>,
    batch: Batch,
    precision: Precision,
    /// Bytes of a shard's gradient in the last step, and of its encoding on the wire.
    bytes: (usize, usize),
}

impl Trainee {
    pub(super) fn new(group: Group, work: &Work, config: &Config) -> Result<Self, Failure> {
        let device = Device::flex().autodiff();
        let (rank, count, size) = (group.rank().0, work.batch_size, work.image_size);
        let is_text = work.reads_text();
        let (channels, height, width, classes) = match is_text {
            true => (1, 1, CONTEXT + 1, BYTE_VOCABULARY),
            false => (3, size, size, CLASSES),
        };
        let samples = SampleShape { channels, height, width, classes, is_text };
        let blueprint = Blueprint::plain(0, samples, &device);
        let stepper = models::find(&work.model)?.stepper(group, &blueprint, config, work.optimizer()?)?;
        let drawn = |i: usize| i * 2_654_435_761 + rank;
        let value = |i: usize| match is_text {
            true => (drawn(i) % classes) as f32,
            false => (drawn(i) % 1000) as f32 / 500.0 - 1.0,
        };
        let shape = [count, channels, height, width];
        let images = (0..shape.iter().product()).map(value).collect();
        let labels = (0..count).map(|i| ((i + rank) % CLASSES) as u32).collect();
        let batch = Batch { images, labels, shape };
        Ok(Trainee { stepper, batch, precision: work.precision()?, bytes: (0, 0) })
    }

    pub(super) fn report(&mut self) -> Result<StepReport, Failure> {
        Ok(with_precision(self.precision, || self.stepper.step(self.batch.clone(), 5e-4))?)
    }

    /// Takes one step and returns the seconds in which this rank waited for communication.
    pub(super) fn step(&mut self) -> Result<f64, Failure> {
        let report = self.report()?;
        let buckets = report.traffic.buckets.iter();
        self.bytes = buckets.fold((0, 0), |sum, bucket| (sum.0 + bucket.bytes, sum.1 + bucket.wire_bytes));
        Ok(report.times.exposed.as_secs_f64())
    }

    pub(super) fn bytes(&self) -> (usize, usize) {
        self.bytes
    }

    pub(super) fn settle(&self) -> Result<(), Failure> {
        let mut settled = Ok(());
        self.stepper.with_replica(&mut |replica| settled = replica.values().map(drop));
        Ok(settled?)
    }
}
