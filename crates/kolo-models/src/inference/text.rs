//! Evaluation of a language model: how well it predicts a text.

use std::fmt;
use std::path::PathBuf;

use burn::tensor::Device;
use kolo_burn::with_precision;
use kolo_burn_train::{Tally, precision};
use kolo_data::{ImageDataSet, Part};
use kolo_run_folder::in_line;
use kolo_run_folder::units::counted;
use serde::Serialize;

use super::subject::Subject;
use crate::error::Error;
use crate::gpt2::{Gpt2Config, lengths};
use crate::table;

/// Scores of a language model on a text. They equal those of a training after the same step, to the last bit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextScores {
    /// Path of the weights.
    pub weights: PathBuf,
    /// Name of the model.
    pub model: String,
    /// The data set.
    pub data: String,
    /// Number of steps that the weights were trained for, if known.
    pub step: Option<u64>,
    /// Part of the data: `test`, or `val` if there is no text for tests.
    pub part: &'static str,
    /// Number of tokens that the model has predicted.
    pub tokens: usize,
    /// Exponential of the mean loss of a token.
    pub perplexity: f64,
    /// Mean loss of a token, in nats.
    pub loss: f64,
    /// Loss of all tokens in bits, divided by the bytes of the text.
    pub bits_per_byte: f64,
}

impl fmt::Display for TextScores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextScores { weights, model, data, part, tokens, perplexity, bits_per_byte, .. } = self;
        let step = self.step.map_or(String::new(), |step| format!(" after step {step}"));
        writeln!(f, "{}: {model}{step}", in_line(weights.display()))?;
        writeln!(
            f,
            "{part} perplexity   {perplexity:.4} per token, of {} of {}",
            counted(*tokens, "token"),
            in_line(data)
        )?;
        writeln!(
            f,
            "{part} text         {bits_per_byte:.4} bits per byte, by which models with other tokens compare"
        )
    }
}

/// Scores a language model on the text for tests, or else for validation.
///
/// # Errors
///
/// There is no such text, or the weights are of another model or tokenizer.
pub fn score_text(subject: Subject, data: &dyn ImageDataSet) -> Result<TextScores, Error> {
    let Subject { config, weights, path, step, .. } = subject;
    table::find(&config.model)?.check(&config, data.shape())?;
    let parts = [(Part::Test, "test"), (Part::Validation, "val")];
    let (part, name) = parts
        .into_iter()
        .find(|(part, _)| data.samples(*part) > 0)
        .ok_or_else(|| Error::NoTestText { data: config.data.clone() })?;
    let shape = Gpt2Config::of(&weights, &path)?;
    shape.check_vocabulary(&path, data.shape().classes)?;
    data.tokenizer().map_or(Ok(()), |tokenizer| kolo_weights::check_tokenizer(&path, tokenizer))?;
    let (device, precision) = (Device::flex(), precision(&config.precision)?);
    let (model, lengths) = (weights.into_module(shape.init(0, &device))?, lengths(data));
    let indices: Vec<usize> = (0..data.samples(part)).collect();
    let mut all = None;
    for indices in indices.chunks(config.test_batch_size.max(1)) {
        let batch = data.batch(part, indices, None)?;
        let tally = with_precision(precision, || model.tally(batch, &device, &lengths));
        match &mut all {
            None => all = Some(tally),
            Some(all) => all.merge(tally),
        }
    }
    let all = all.ok_or_else(|| Error::NoTestText { data: config.data.clone() })?;
    let (tokens, values) = (all.1.0.count as usize, all.finish());
    Ok(TextScores {
        weights: path,
        model: config.model,
        data: config.data,
        step,
        part: name,
        tokens,
        perplexity: values[0],
        loss: values[1],
        bits_per_byte: values[2],
    })
}
