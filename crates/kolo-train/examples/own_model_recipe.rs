//! One's own model, data and sink through the whole trainer: run folder, checkpoints, metrics, resume.
//!
//! `cargo run -p kolo-train --example own_model_recipe`, or with two workers `kolo launch --nproc 2 -- <that
//! program>`: both end in the same weights.

use std::sync::Arc;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, activation::relu};
use kolo_burn::Loss;
use kolo_comm::Group;
use kolo_data::{Augment, Batch, ImageSet, Images};
use kolo_train::{
    Blueprint, Error, Job, Membership, MetricSink, Model, Record, RunFolder, SinkEntry, TrainConfig,
    TrainingContext, count_correct, cross_entropy, image_tensors, train,
};

#[derive(Module, Debug)]
struct Mlp {
    hidden: Linear,
    out: Linear,
}

impl Mlp {
    fn new(hidden: usize, blueprint: &Blueprint<'_>) -> Self {
        let (samples, device) = (blueprint.samples, blueprint.device);
        device.seed(blueprint.seed);
        let pixels = samples.channels * samples.height * samples.width;
        Mlp {
            hidden: LinearConfig::new(pixels, hidden).init(device),
            out: LinearConfig::new(hidden, samples.classes).init(device),
        }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.out.forward(relu(self.hidden.forward(images.flatten(1, 3))))
    }
}

impl Model for Mlp {
    fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss {
        let (images, labels) = image_tensors(batch, context.device);
        cross_entropy(self.forward(images), labels)
    }

    fn correct(&self, batch: Batch, device: &Device) -> usize {
        let (images, labels) = image_tensors(batch, device);
        count_correct(self.forward(images), labels)
    }
}

/// Three kinds of stripes, 8x8, with noise.
fn stripes(count: usize) -> Images {
    let pixel = |i: usize, y: usize, x: usize| {
        let bright = [y, x, x + y][i % 3] % 4 < 2;
        ((i * 7919 + y * 104_729 + x * 1_299_709) % 97) as u8 + if bright { 120 } else { 0 }
    };
    let image = |i| (0..64).map(move |at| pixel(i, at / 8, at % 8));
    let labels = (0..count).map(|i| (i % 3) as u8).collect();
    Images { channels: 1, height: 8, width: 8, pixels: (0..count).flat_map(image).collect(), labels }
}

/// Says how each epoch went.
struct Epochs;

impl MetricSink for Epochs {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        if let Record::Epoch(row) = record {
            println!("epoch {}: {:.1} % right", row.epoch, 100.0 * row.test_accuracy);
        }
        Ok(())
    }
}

const EPOCHS: SinkEntry =
    SinkEntry { name: "epochs", about: "a line an epoch, on standard output", open: |_| Box::new(Epochs) };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = tempfile::tempdir()?;
    let group = Group::from_env()?;
    let data = ImageSet::new(stripes(600), stripes(90), 3, Augment::default());
    let config = TrainConfig {
        model: "mlp".into(),
        data: "stripes".into(),
        epochs: 2,
        shards: 4,
        nproc: group.world_size(),
        batch_size: 10,
        ..TrainConfig::default()
    };
    let mut job = Job::new(config, Arc::new(data));
    job.sinks.push(EPOCHS);
    if group.rank().0 == 0 {
        job.folder = Some(RunFolder::create(parent.path().join("run"), &job.config)?);
    }
    let summary = train(&job, Membership::Fixed(group), |blueprint| Mlp::new(32, blueprint))?;
    if let Some(summary) = summary {
        println!("{} steps, weights {}", summary.steps, summary.weights_sha256);
    }
    Ok(())
}
