//! `kolo evaluate`: accuracy of a trained model, scores of its classes, and its speed; or perplexity of a
//! text.

use std::path::PathBuf;

use clap::Args;
use kolo_comm::schedule::words::counted;
use kolo_data::{DataError, ImageDataSet, Part};
use kolo_models::inference::{Given, Latency, Subject, classify, latency, score_text};
use kolo_models::{Error, Stem};
use kolo_run_folder::{Classification, WrongSample};
use serde::Serialize;

use kolo::Failure;
use kolo_program::output::{in_line, print, print_json, warn};

use super::of_run::OfRun;

/// The largest of the default batch sizes, which are permitted with fewer test images, too.
const LARGEST_DEFAULT: usize = 32;

/// Most classes in the printed table.
const MOST_CLASSES: usize = 20;

/// Most wrong samples that are printed.
const MOST_WRONG: usize = 3;

/// Evaluate trained weights: accuracy, scores of each class and speed on images, or perplexity on a text.
///
/// The accuracy covers all test images and equals the run's own to the last bit. Each class has its
/// precision, recall and F1 score, and its row of the confusion matrix. The latency is from normalized images
/// to scores, in one process on this machine's CPU. Of a language model, Kolo prints the perplexity of a
/// token and the bits per byte, on the text for tests or else for validation.
#[derive(Args)]
pub(crate) struct Evaluate {
    /// A run folder, a checkpoint, or what `kolo export` has written
    path: PathBuf,
    #[command(flatten)]
    checkpoint: OfRun,
    /// Data set, in the format of `kolo train --data` [default: that of the run]
    #[arg(long)]
    data: Option<String>,
    /// Model of the weights [default: that of the run]
    #[arg(long)]
    model: Option<String>,
    /// First layers of a residual network: imagenet or small [default: those of the run]
    #[arg(long, value_enum, hide_possible_values = true)]
    stem: Option<Stem>,
    /// Type of convolutions and matrix products: f32, bf16 or f16 [default: that of the run; f32 for a
    /// file]
    #[arg(long, value_name = "TYPE")]
    precision: Option<String>,
    /// Batch sizes whose latency Kolo measures, in images
    #[arg(long, value_name = "IMAGES", value_delimiter = ',', default_value = "1,8,32")]
    #[arg(value_parser = at_least_1)]
    batch_sizes: Vec<usize>,
    /// Timed batches of images per size; 0 measures no latency
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
    #[serde(skip)]
    noun: &'static str,
    test_accuracy: f64,
    classification: Classification,
    latency: Vec<Latency>,
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (model, data, precision) = (self.model.clone(), self.data.clone(), self.precision.clone());
        let given = Given { model, data, stem: self.stem, precision };
        let subject = Subject::find(&self.path, self.checkpoint.which(), &given)?;
        let images = subject.open_data().map_err(|error| match error {
            DataError::NoPath { usage, .. } if self.data.is_none() => {
                Failure::from(Error::NoDataKnown { path: self.path.clone(), usage })
            }
            DataError::UnknownDataset { .. } | DataError::NoKind { .. } if self.data.is_none() => {
                Failure::input(format!(
                    "{}: the data of this run is a program's own, which has to evaluate it; or give --data",
                    self.path.display()
                ))
            }
            error => Failure::input(error),
        })?;
        subject.warnings(&*images).iter().for_each(|words| warn(words));
        if images.shape().is_text {
            let scores = score_text(subject, &*images)?;
            return if self.json { print_json(&scores) } else { print(&scores.to_string()) };
        }
        let evaluation = self.evaluate(subject, &*images)?;
        if self.json { print_json(&evaluation) } else { print(&evaluation.text()) }
    }

    fn evaluate(&self, subject: Subject, images: &dyn ImageDataSet) -> Result<Evaluation, Failure> {
        let largest = self.batch_sizes.iter().copied().max().unwrap_or(0);
        let most = images.samples(Part::Test).max(LARGEST_DEFAULT);
        let noun = images.preprocessing().map_or("image", |how| how.noun());
        if largest > most {
            return Err(Failure::input(format!(
                "--batch-sizes {largest}: it must be at most {most}; {} has {}",
                subject.config.data,
                counted(images.samples(Part::Test), &format!("test {noun}"))
            )));
        }
        let (config, weights, step) = (subject.config.clone(), subject.path.clone(), subject.step);
        let classifier = subject.load(images)?;
        let counts = classify(&*classifier, images, config.test_batch_size)?.ok_or_else(|| {
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
            noun,
            test_accuracy: counts.confusion.accuracy(),
            classification: counts.described(Part::Test, images),
            latency,
        })
    }
}

impl Evaluation {
    fn text(&self) -> String {
        let step = self.step.map_or(String::new(), |step| format!(" after step {step}"));
        let mut text = format!("{}: {}{step}\n", in_line(self.weights.display()), self.model);
        text += &format!(
            "test accuracy   {:.2} % of the {} of {}\n",
            100.0 * self.test_accuracy,
            counted(self.test_images, &format!("test {}", self.noun)),
            self.data
        );
        text += &classes(&self.classification);
        if self.latency.is_empty() {
            return text;
        }
        text += &format!(
            "\n{:>10}  {:>10}  {:>10}  {:>10}  {:>10}\n",
            "batch size",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            self.noun.to_owned() + "s/s"
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

/// Returns a table of the classes, with the confusion matrix if it is small, and the most wrong samples.
fn classes(found: &Classification) -> String {
    let mut classes: Vec<_> = found.classes.iter().enumerate().collect();
    let has_matrix = classes.len() <= MOST_CLASSES;
    if !has_matrix {
        classes.sort_by(|(_, a), (_, b)| a.f1.total_cmp(&b.f1));
    }
    let left_out = classes.len().saturating_sub(MOST_CLASSES);
    classes.truncate(MOST_CLASSES);
    let width =
        classes.iter().map(|(_, class)| in_line(&class.class).chars().count()).max().unwrap_or(0).max(5);
    let columns = if has_matrix { classes.len() } else { 0 };
    let heads: String = (0..columns).map(|label| format!("{:>7}", format!("as {label}"))).collect();
    let mut text = format!(
        "\n{:>5}  {:width$}  {:>7}  {:>11}  {:>8}  {:>8}{heads}\n",
        "label", "class", "samples", "precision %", "recall %", "F1 %"
    );
    for (label, class) in classes {
        let [precision, recall, f1] = [class.precision, class.recall, class.f1].map(|share| 100.0 * share);
        let count = |guess: usize| class.predicted.get(&(guess as u32)).copied().unwrap_or(0);
        let row: String = (0..columns).map(|guess| format!("{:>7}", count(guess))).collect();
        text += &format!(
            "{label:>5}  {:width$}  {:>7}  {precision:>11.2}  {recall:>8.2}  {f1:>8.2}{row}\n",
            in_line(&class.class),
            class.samples
        );
    }
    if found.not_finite > 0 {
        text += &format!(
            "not finite      the scores of {}: counted as wrong\n",
            counted(found.not_finite, "sample")
        );
    }
    if left_out > 0 {
        text +=
            &format!("{} with higher F1 scores; --json has all of them\n", counted(left_out, "more class"));
    }
    for WrongSample { sample, name, class, predicted, probability } in
        found.most_wrong.iter().take(MOST_WRONG)
    {
        let name = name.clone().unwrap_or_else(|| format!("test sample {sample}"));
        let words = format!("{name}: {class}, taken for {predicted} ({:.2} %)", 100.0 * probability);
        text += &format!("most wrong      {}\n", in_line(words));
    }
    text
}

fn at_least_1(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "give numbers of images, as 1,8,32".into())
}
