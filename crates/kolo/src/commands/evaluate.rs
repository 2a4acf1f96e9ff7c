//! `kolo evaluate`: accuracy and speed of a trained model.

use std::path::{Path, PathBuf};

use clap::Args;
use kolo_data::{ImageDataSet, Part};
use kolo_models::Stem;
use kolo_models::inference::{Given, Latency, Subject, accuracy, latency};
use serde::Serialize;

use kolo::Failure;
use kolo_program::output::{print, print_json};

use super::of_run::OfRun;

/// The largest of the default batch sizes, which are permitted with fewer test images, too.
const LARGEST_DEFAULT: usize = 32;

/// Evaluate trained weights: accuracy on the test images, and how long a batch takes.
///
/// The accuracy is that of all test images, to the last bit what the run has measured. The latency is from
/// normalized images to scores, of one process on this machine's CPU.
#[derive(Args)]
pub(crate) struct Evaluate {
    /// A run folder, a checkpoint, or a file that `kolo export` has written
    path: PathBuf,
    #[command(flatten)]
    checkpoint: OfRun,
    /// Data set, as `kolo train --data` takes it [default: that of the run]
    #[arg(long)]
    data: Option<String>,
    /// Model that the weights are of [default: that of the run]
    #[arg(long)]
    model: Option<String>,
    /// How images come into a residual network: imagenet or small [default: that of the run]
    #[arg(long, value_enum, hide_possible_values = true)]
    stem: Option<Stem>,
    /// Type in which convolutions and matrix products compute: f32, bf16 or f16 [default: that of the run; of
    /// a file f32]
    #[arg(long, value_name = "TYPE")]
    precision: Option<String>,
    /// Images of a batch whose latency is measured, one measurement for each
    #[arg(long, value_name = "IMAGES", value_delimiter = ',', default_value = "1,8,32")]
    #[arg(value_parser = at_least_1)]
    batch_sizes: Vec<usize>,
    /// Batches that are timed of each size; 0: no latency
    #[arg(long, value_name = "BATCHES", default_value_t = 100)]
    repeats: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Output of `kolo evaluate`.
#[derive(Serialize)]
struct Evaluation {
    /// File of the weights.
    weights: PathBuf,
    model: String,
    data: String,
    /// Number of steps that the weights were trained for, if known.
    step: Option<u64>,
    precision: String,
    test_images: usize,
    test_accuracy: f64,
    latency: Vec<Latency>,
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (model, data, precision) = (self.model.clone(), self.data.clone(), self.precision.clone());
        let given = Given { model, data, stem: self.stem, precision };
        let subject = Subject::find(&self.path, self.checkpoint.which(), &given)?;
        let images = subject.open_data().map_err(Failure::input)?;
        let evaluation = self.evaluate(subject, &*images)?;
        if self.json { print_json(&evaluation) } else { print(&evaluation.text()) }
    }

    fn evaluate(&self, subject: Subject, images: &dyn ImageDataSet) -> Result<Evaluation, Failure> {
        let largest = self.batch_sizes.iter().copied().max().unwrap_or(0);
        let most = images.samples(Part::Test).max(LARGEST_DEFAULT);
        if largest > most {
            return Err(Failure::input(format!(
                "--batch-sizes {largest}: it must be at most {most}; {} has {} test images",
                subject.config.data,
                images.samples(Part::Test)
            )));
        }
        let (config, weights, step) = (subject.config.clone(), subject.path.clone(), subject.step);
        let classifier = subject.load(images)?;
        let test_accuracy = accuracy(&*classifier, images, config.test_batch_size)?.ok_or_else(|| {
            Failure::input(format!(
                "{} has no test samples; name samples to evaluate on with --data, as folder:DIR with a folder for each class",
                config.data
            ))
        })?;
        let timed = self.batch_sizes.iter().filter(|_| self.repeats > 0);
        let latency =
            timed.map(|size| latency(&*classifier, images, *size, self.repeats)).collect::<Result<_, _>>()?;
        Ok(Evaluation {
            weights,
            model: config.model,
            data: config.data,
            step,
            precision: config.precision.compute,
            test_images: images.samples(Part::Test),
            test_accuracy,
            latency,
        })
    }
}

impl Evaluation {
    fn text(&self) -> String {
        let step = self.step.map_or(String::new(), |step| format!(" after step {step}"));
        let mut text = format!("{}: {}{step}\n", shown(&self.weights), self.model);
        let (images, data) = (self.test_images, &self.data);
        text += &format!(
            "test accuracy   {:.2} % of the {images} test images of {data}\n",
            100.0 * self.test_accuracy
        );
        if self.latency.is_empty() {
            return text;
        }
        text += &format!(
            "\n{:>10}  {:>10}  {:>10}  {:>10}  {:>10}\n",
            "batch size", "p50 ms", "p95 ms", "p99 ms", "images/s"
        );
        for Latency { batch_size, p50_ms, p95_ms, p99_ms, images_per_second, .. } in &self.latency {
            text += &format!(
                "{batch_size:>10}  {p50_ms:>10.3}  {p95_ms:>10.3}  {p99_ms:>10.3}  \
                 {images_per_second:>10.0}\n"
            );
        }
        text
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn at_least_1(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "give numbers of images, as 1,8,32".into())
}
