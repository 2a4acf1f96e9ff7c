//! `kolo predict`: the classes of files.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;
use kolo_data::{Batch, TablePlace, image_files};
use kolo_models::inference::{Prediction, Predictor};
use serde::Serialize;

use kolo::Failure;
use kolo_program::output::{event, in_line, note, print};

use super::of_run::OfRun;

/// Most samples of a batch.
const BATCH: usize = 32;

/// Name the classes of images, or of the rows of tables, with their probabilities.
///
/// Kolo preprocesses files as the run's evaluation did. If it cannot read a file, it names the file,
/// continues with the others, and exits with 2.
#[derive(Args)]
pub(crate) struct Predict {
    /// A run folder, a checkpoint, or a file from `kolo export`
    run: PathBuf,
    /// Images and folders of images. For a run with --data csv or parquet: tables with the same columns
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    checkpoint: OfRun,
    /// Number of most probable classes to name per sample
    #[arg(long, value_name = "CLASSES", default_value_t = 5)]
    top_k: usize,
    /// Print JSON, an object per line: file, line or row (of tables), predictions
    #[arg(long)]
    json: bool,
}

/// A file, or a row of it.
struct Sample {
    file: PathBuf,
    place: Option<TablePlace>,
}

/// An object of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    #[serde(flatten)]
    place: Option<TablePlace>,
    predictions: &'a [Prediction],
}

impl Predict {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.top_k == 0 {
            return Err(Failure::input("--top-k 0: it must be at least 1"));
        }
        let predictor = Predictor::find(&self.run, self.checkpoint.which())?;
        let mut printer = Printer { predict: &self, predictor: &predictor, waiting: Vec::new(), failed: 0 };
        for path in &self.files {
            match predictor.files.table() {
                Some(_) => printer.rows(path)?,
                None => printer.images(path)?,
            }
        }
        printer.print()?;
        ended(printer.failed)
    }
}

/// Returns the end of the command after so many files or rows without a prediction.
fn ended(failed: usize) -> Result<(), Failure> {
    match failed {
        0 => Ok(()),
        1 => Err(Failure::input("one file or row has no prediction; it is named above")),
        failed => {
            Err(Failure::input(format!("{failed} files or rows have no prediction; they are named above")))
        }
    }
}

/// Prints predictions in the order of the files.
struct Printer<'a> {
    predict: &'a Predict,
    predictor: &'a Predictor,
    /// Samples of the next batch.
    waiting: Vec<(Sample, Batch)>,
    failed: usize,
}

impl Printer<'_> {
    fn images(&mut self, path: &Path) -> Result<(), Failure> {
        let files = image_files(path).unwrap_or_else(|error| {
            self.fail(error);
            Vec::new()
        });
        for file in files {
            match self.predictor.files.image(&file) {
                Ok(image) => self.add(Sample { file, place: None }, image)?,
                Err(error) => self.fail(error),
            }
        }
        Ok(())
    }

    fn rows(&mut self, path: &Path) -> Result<(), Failure> {
        let rows = self.predictor.files.rows(path).unwrap_or_else(|error| {
            self.fail(error);
            Vec::new()
        });
        for (place, row) in rows {
            match row {
                Ok(row) => self.add(Sample { file: path.into(), place: Some(place) }, row)?,
                Err(error) => self.fail(error),
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: impl Display) {
        let error = in_line(error);
        note(&if self.predict.json { event("error", &error).to_string() } else { format!("error: {error}") });
        self.failed += 1;
    }

    fn add(&mut self, sample: Sample, batch: Batch) -> Result<(), Failure> {
        self.waiting.push((sample, batch));
        if self.waiting.len() < BATCH { Ok(()) } else { self.print() }
    }

    /// Predicts and prints the waiting samples.
    fn print(&mut self) -> Result<(), Failure> {
        let (samples, batches): (Vec<Sample>, Vec<Batch>) = self.waiting.drain(..).unzip();
        let Some([_, channels, height, width]) = batches.first().map(|batch| batch.shape) else {
            return Ok(());
        };
        let shape = [batches.len(), channels, height, width];
        let images = batches.into_iter().flat_map(|batch| batch.images).collect();
        let batch = Batch { images, labels: vec![0; samples.len()], shape };
        let predictions = self.predictor.predict(batch, self.predict.top_k);
        let mut lines = String::new();
        for (sample, found) in samples.iter().zip(&predictions) {
            match found {
                Some(found) if self.predict.json => lines += &json(sample, found)?,
                Some(found) => lines += &text(sample, found),
                None => self.fail(format!(
                    "{}: the model's scores are not finite; choose a checkpoint from before it diverged",
                    place(sample)
                )),
            }
        }
        print(&lines)
    }
}

fn json(Sample { file, place }: &Sample, predictions: &[Prediction]) -> Result<String, Failure> {
    let line = Line { file: &file.to_string_lossy(), place: *place, predictions };
    Ok(serde_json::to_string(&line).map_err(Failure::work)? + "\n")
}

/// Returns the file of a sample, and its place in a table.
fn place(Sample { file, place }: &Sample) -> String {
    let place = place.map_or(String::new(), |place| format!(", {place}"));
    format!("{}{place}", file.display())
}

/// Formats a sample and its classes: `flowers/1.jpg: rose 97.3 %, tulip 2.1 %`.
fn text(sample: &Sample, predictions: &[Prediction]) -> String {
    let of_class = |found: &Prediction| format!("{} {:.1} %", found.class, 100.0 * found.probability);
    let classes: Vec<String> = predictions.iter().map(of_class).collect();
    format!("{}\n", in_line(format_args!("{}: {}", place(sample), classes.join(", "))))
}

#[cfg(test)]
mod tests {
    use kolo_program::Ending;

    use super::*;

    #[test]
    fn a_file_without_a_prediction_makes_the_exit_code_2() {
        assert!(ended(0).is_ok());
        for (failed, words) in [(1, "one file or row has"), (3, "3 files or rows have")] {
            let ending = Ending::of(&ended(failed).unwrap_err());
            assert_eq!(ending.code, 2);
            assert!(ending.message.starts_with(words), "{}", ending.message);
        }
    }
}
