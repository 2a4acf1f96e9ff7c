//! A user's model, data set and sink, and a job with them.

use std::path::Path;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use kolo_burn::{Loss, linear};
use kolo_burn_train::{
    Error, Job, Mean, Membership, Metric, MetricSink, Recipe, Record, RecordError, RunFolder, SinkEntry,
    Summary, Trainer, TrainingContext, accuracy, cross_entropy, image_tensors,
};
use kolo_comm::Group;
use kolo_data::{AugmentKey, Batch, DataError, DataSet, Part};

pub const CLASSES: usize = 3;
pub const PIXELS: usize = 16;

#[derive(Module, Debug)]
pub struct Perceptron {
    layer: Linear,
}

impl Perceptron {
    pub fn new() -> Self {
        // Not Burn's random state, which all threads of a test share.
        let value = |i: usize| ((i as u64 * 7919) % 101) as f32 / 101.0 - 0.5;
        let values: Vec<f32> = (0..PIXELS * CLASSES).map(value).collect();
        let weight = Param::from_data(TensorData::new(values, [PIXELS, CLASSES]), &Device::flex().autodiff());
        Perceptron { layer: Linear { weight, bias: None } }
    }

    pub fn scores(&self, images: Tensor<4>) -> Tensor<2> {
        linear(&self.layer, images.flatten(1, 3))
    }

    pub fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss {
        let (images, labels) = image_tensors(batch, context.device);
        cross_entropy(self.scores(images), labels)
    }

    pub fn right(&self, batch: Batch, device: &Device) -> [Mean; 1] {
        let (images, labels) = image_tensors(batch, device);
        [accuracy(self.scores(images), labels)]
    }
}

/// Samples that are computed on request: the brightest quarter decides the class.
pub struct Computed;

impl DataSet for Computed {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        match part {
            Part::Train => 62,
            Part::Test => 20,
            Part::Validation => 0,
        }
    }

    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Result<Batch, DataError> {
        let epoch = augment.map_or(0, |key| key.epoch as usize);
        let noise = |at: usize| ((at * 104_729 + epoch * 31 + part as usize) % 89) as f32 / 89.0;
        let pixel = |i: usize, p: usize| noise(i * PIXELS + p) + if p % 4 == i % CLASSES { 0.8 } else { 0.0 };
        let images = indices.iter().flat_map(|&i| (0..PIXELS).map(move |p| pixel(i, p))).collect();
        let labels = indices.iter().map(|i| (i % CLASSES) as u32).collect();
        Ok(Batch { images, labels, shape: [indices.len(), 1, 4, 4] })
    }
}

/// The computed samples, of which one part may have another label or some more samples.
#[derive(Default)]
pub struct Relabeled {
    pub label: Option<(Part, usize)>,
    pub more: usize,
}

impl Relabeled {
    /// Makes a data set in which one sample has another label.
    pub fn at(part: Part, index: usize) -> Self {
        Relabeled { label: Some((part, index)), more: 0 }
    }
}

impl DataSet for Relabeled {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        Computed.samples(part) + if part == Part::Train { self.more } else { 0 }
    }

    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Result<Batch, DataError> {
        let mut batch = Computed.batch(part, indices, augment)?;
        for (label, index) in batch.labels.iter_mut().zip(indices) {
            if self.label == Some((part, *index)) {
                *label = (*label + 1) % CLASSES as u32;
            }
        }
        Ok(batch)
    }
}

/// Writes the number of each step into a file of its own.
pub struct Numbers(std::path::PathBuf, String);

impl MetricSink for Numbers {
    fn record(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        if let Record::Step { row, .. } = record {
            self.1 += &format!("{} ", row.step);
            std::fs::write(&self.0, &self.1).unwrap();
        }
        Ok(())
    }
}

pub const NUMBERS: SinkEntry = SinkEntry {
    name: "numbers.txt",
    about: "the number of each step",
    open: |run| Some(Box::new(Numbers(run.folder?.path().join("numbers.txt"), String::new()))),
};

/// Three epochs of eight steps, of which the last is short; `steps` ends the run earlier.
pub fn job(folder: &Path, steps: Option<u64>, resume: bool) -> Job {
    let config = Recipe { epochs: 3, steps, shards: 4, batch_size: 2, ..Recipe::default() };
    let folder = Some(RunFolder::at(folder.into()));
    let mut job = Job { folder, resume, ..Job::new(config) };
    job.sinks.push(NUMBERS);
    job
}

pub fn run(group: Group, job: Job) -> Result<Option<Summary>, Error> {
    run_over(group, job, Computed)
}

pub fn run_over(
    group: Group,
    job: Job,
    data: impl DataSet<Batch = Batch> + 'static,
) -> Result<Option<Summary>, Error> {
    let trainer = Trainer::of(job, Arc::new(data), Perceptron::loss).counting("images");
    let trainer = trainer.evaluate([Metric::ACCURACY], Perceptron::right);
    Ok(trainer.train_as(Membership::Fixed(group), Perceptron::new())?.summary)
}
