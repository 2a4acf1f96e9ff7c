//! A user's own model, data set and sink go through the whole trainer like those of the tables.

use std::path::Path;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use kolo_burn::Loss;
use kolo_comm::{Group, threads};
use kolo_data::{AugmentKey, Batch, DataSet, Part};
use kolo_train::{
    Error, Job, Mean, Membership, Metric, MetricSink, Recipe, Record, RunFolder, SinkEntry, Summary, Trainer,
    TrainingContext, count_correct, cross_entropy, image_tensors,
};

const CLASSES: usize = 3;
const PIXELS: usize = 16;

/// One linear layer.
#[derive(Module, Debug)]
struct Perceptron {
    layer: Linear,
}

impl Perceptron {
    fn new() -> Self {
        // Not Burn's random state, which all threads of a test share.
        let value = |i: usize| ((i as u64 * 7919) % 101) as f32 / 101.0 - 0.5;
        let values: Vec<f32> = (0..PIXELS * CLASSES).map(value).collect();
        let weight = Param::from_data(TensorData::new(values, [PIXELS, CLASSES]), &Device::flex().autodiff());
        Perceptron { layer: Linear { weight, bias: None } }
    }

    fn scores(&self, images: Tensor<4>) -> Tensor<2> {
        self.layer.forward(images.flatten(1, 3))
    }
}

impl Perceptron {
    fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss {
        let (images, labels) = image_tensors(batch, context.device);
        cross_entropy(self.scores(images), labels)
    }

    fn right(&self, batch: Batch, device: &Device) -> [Mean; 1] {
        let (count, (images, labels)) = (batch.len(), image_tensors(batch, device));
        [Mean::share(count_correct(self.scores(images), labels), count)]
    }
}

/// Samples that are computed when they are asked for: the brightest quarter says the class.
struct Computed;

impl DataSet for Computed {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        match part {
            Part::Train => 62,
            Part::Test => 20,
        }
    }

    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Batch {
        let epoch = augment.map_or(0, |key| key.epoch as usize);
        let noise = |at: usize| ((at * 104_729 + epoch * 31 + part as usize) % 89) as f32 / 89.0;
        let pixel = |i: usize, p: usize| noise(i * PIXELS + p) + if p % 4 == i % CLASSES { 0.8 } else { 0.0 };
        let images = indices.iter().flat_map(|&i| (0..PIXELS).map(move |p| pixel(i, p))).collect();
        let labels = indices.iter().map(|i| (i % CLASSES) as i32).collect();
        Batch { images, labels, shape: [indices.len(), 1, 4, 4] }
    }
}

/// Writes the number of each step into a file of its own.
struct Numbers(std::path::PathBuf, String);

impl MetricSink for Numbers {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        if let Record::Step { row, .. } = record {
            self.1 += &format!("{} ", row.step);
            std::fs::write(&self.0, &self.1).unwrap();
        }
        Ok(())
    }
}

const NUMBERS: SinkEntry = SinkEntry {
    name: "numbers.txt",
    about: "the number of each step",
    open: |run| Some(Box::new(Numbers(run.folder?.path().join("numbers.txt"), String::new()))),
};

/// Three epochs of eight steps, of which the last is short; `steps` ends the run before.
fn job(folder: &Path, steps: Option<u64>, resume: bool) -> Job {
    let config = Recipe { epochs: 3, steps, shards: 4, batch_size: 2, ..Recipe::default() };
    let folder = Some(RunFolder::at(folder.into()));
    let mut job = Job { folder, resume, ..Job::new(config) };
    job.sinks.push(NUMBERS);
    job
}

fn run(group: Group, job: Job) -> Result<Option<Summary>, Error> {
    let trainer = Trainer::of(job, Arc::new(Computed), Perceptron::loss).counting("images");
    let trainer = trainer.evaluate([Metric::ACCURACY], Perceptron::right);
    Ok(trainer.train_as(Membership::Fixed(group), Perceptron::new())?.summary)
}

#[test]
fn the_same_weights_on_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(Group::alone(), job(folder.path(), None, false)).unwrap().unwrap();
    assert_eq!((whole.steps, whole.epochs, whole.parameters), (24, 3, PIXELS * CLASSES));
    assert!(whole.scores.get("accuracy").unwrap() > 0.8 && whole.train_loss < 1.0, "{whole:?}");
    let numbers = std::fs::read_to_string(folder.path().join("numbers.txt")).unwrap();
    assert_eq!(numbers, (0..24).map(|step| format!("{step} ")).collect::<String>());
    for world in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        let summaries = threads::spawn(world, |group| {
            run(group, job(folder.path(), None, false)).unwrap().map(|summary| summary.weights_sha256)
        });
        // Rank 0 alone has one.
        let summaries: Vec<String> = summaries.unwrap().into_iter().flatten().collect();
        assert_eq!(summaries, std::slice::from_ref(&whole.weights_sha256), "{world} workers");
    }
}

#[test]
fn a_run_that_is_resumed_ends_in_the_weights_of_a_whole_one() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = run(Group::alone(), job(whole.path(), None, false)).unwrap().unwrap();
    let first = run(Group::alone(), job(parts.path(), Some(11), false)).unwrap().unwrap();
    assert!(first.steps == 11 && first.weights_sha256 != expected.weights_sha256);
    let resumed = run(Group::alone(), job(parts.path(), None, true)).unwrap().unwrap();
    assert_eq!((resumed.steps, &resumed.weights_sha256), (24, &expected.weights_sha256));
    let lines = |name| std::fs::read_to_string(parts.path().join(name)).unwrap().lines().count();
    assert_eq!((lines("steps.jsonl"), lines("metrics.csv")), (24, 1 + 3));
    // Complete: there is nothing to go on with.
    let error = run(Group::alone(), job(parts.path(), None, true)).unwrap_err();
    assert!(matches!(error, Error::Complete { total: 24, .. }) && error.is_input(), "{error}");
}

#[test]
fn a_setting_that_cannot_be_is_told_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = job(folder.path(), None, false);
    wrong.config.batch_size = 0;
    let error = run(Group::alone(), wrong).unwrap_err();
    assert!(error.is_input() && error.to_string().contains("--batch-size 0"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
