//! A training whose steps are measured: on random images, which a worker makes itself.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::Args;
use kolo_burn::{Ddp, Loss};
use kolo_comm::Group;
use kolo_ddp::Config;
use kolo_ddp::optimizer::{self, Optimizer};
use kolo_ddp::table::Value;
use kolo_train::models::{self, ResNet};

use super::at_least_1;
use crate::fail::Failure;

const CLASSES: usize = 10;

/// What a step works on.
#[derive(Args)]
pub(super) struct Work {
    /// Network
    #[arg(long, default_value = "resnet18")]
    pub(super) model: String,
    /// Images a worker
    #[arg(long, default_value_t = 32)]
    pub(super) batch_size: usize,
    /// Height and width of the images, which have three channels
    #[arg(long, default_value_t = 32)]
    image_size: usize,
    /// Optimizer
    #[arg(long, default_value = "adamw")]
    optimizer: String,
}

impl Work {
    pub(super) fn check(&self) -> Result<(), Failure> {
        models::find(&self.model).map_err(Failure::input)?;
        optimizer::find(&self.optimizer).map_err(Failure::input)?;
        at_least_1(&[("--batch-size", self.batch_size), ("--image-size", self.image_size)])
    }

    fn optimizer(&self) -> Result<Box<dyn Optimizer>, Failure> {
        let entry = optimizer::find(&self.optimizer).map_err(Failure::input)?;
        let decay = entry.setting("weight_decay").map(|setting| (setting.name.into(), Value::Number(1e-4)));
        entry.build(&decay.into_iter().collect()).map_err(Failure::input)
    }
}

/// See the module's text.
pub(super) struct Trainee {
    pub(super) ddp: Ddp<ResNet>,
    images: Tensor<4>,
    labels: Tensor<1, Int>,
}

impl Trainee {
    pub(super) fn new(group: Group, work: &Work, config: &Config) -> Result<Self, Failure> {
        let device = Device::flex().autodiff();
        let (rank, batch, size) = (group.rank().0, work.batch_size, work.image_size);
        let entry = models::find(&work.model).map_err(Failure::input)?;
        let model = (entry.config)(3, CLASSES).init(0, &device);
        let ddp = Ddp::new(group, model, config, work.optimizer()?)?;
        let pixel = |i: usize| ((i * 2_654_435_761 + rank) % 1000) as f32 / 500.0 - 1.0;
        let pixels: Vec<f32> = (0..batch * 3 * size * size).map(pixel).collect();
        let labels: Vec<i32> = (0..batch).map(|i| ((i + rank) % CLASSES) as i32).collect();
        let images = Tensor::from_data(TensorData::new(pixels, [batch, 3, size, size]), &device);
        let labels = Tensor::from_data(TensorData::new(labels, [batch]), &device);
        Ok(Trainee { ddp, images, labels })
    }

    /// One step; returns the seconds in which this rank waited for communication.
    pub(super) fn step(&mut self) -> Result<f64, Failure> {
        let scores = self.ddp.model().forward(self.images.clone());
        let criterion = CrossEntropyLossConfig::new().init(&scores.device());
        let count = scores.dims()[0];
        self.ddp.backward(Loss::mean(criterion.forward(scores, self.labels.clone()), count))?;
        Ok(self.ddp.step(5e-4)?.exposed.as_secs_f64())
    }
}
