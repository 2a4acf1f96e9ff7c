//! Options for one worker's step: measured, or from figures.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use kolo::Failure;
use kolo_plan::step::{Caps, StepProfile, WireCost};

use super::origin::Origin;
use super::other_profiles::{measured_with, others};
use super::run_profile;
use crate::bench::profile::WorkerProfile;
use crate::commands::plan::numbers::positive;

/// Options for one worker's step: measured, or from figures.
#[derive(Args)]
pub(super) struct ProfileOptions {
    /// Use the measured step of the run in this folder: its passes, optimizer and buckets
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = FIGURES, conflicts_with_all = ["profile", "model"])]
    from: Option<PathBuf>,
    /// Use the step in this file, which has the output of `kolo bench profile`. --advise compares it with
    /// further files, of other batches, precisions or reductions
    #[arg(long, value_name = "FILE[,FILE…]", value_delimiter = ',', conflicts_with_all = FIGURES, conflicts_with = "model")]
    profile: Vec<PathBuf>,
    /// Measure the step of this network now, as `kolo bench profile` does
    #[arg(long, conflicts_with_all = FIGURES)]
    model: Option<String>,
    /// With --model: images per worker. --advise compares the first number with further ones
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [32], requires = "model")]
    batch_size: Vec<usize>,
    /// With --model: f32, bf16 or f16. --advise compares the first type with further ones
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = ["f32"], requires = "model")]
    precision: Vec<String>,
    /// Milliseconds of one worker's forward pass
    #[arg(long, value_name = "MS", value_parser = positive)]
    forward_ms: Option<f64>,
    /// Milliseconds of its backward pass
    #[arg(long, value_name = "MS", value_parser = positive)]
    backward_ms: Option<f64>,
    /// Milliseconds of its optimizer
    #[arg(long, value_name = "MS", value_parser = positive)]
    optimizer_ms: Option<f64>,
    /// Parameters of the model, in f32
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    parameters: Option<f64>,
}

/// Figures that a measured step replaces.
const FIGURES: [&str; 4] = ["forward_ms", "backward_ms", "optimizer_ms", "parameters"];

impl ProfileOptions {
    /// True if the options describe more than one profile.
    pub(super) fn are_several(&self) -> bool {
        self.profile.len() > 1 || self.batch_size.len() * self.precision.len() > 1
    }

    /// Reads, measures or computes the profile; `caps` are those of a job on the given cluster.
    pub(super) fn origin(&self, caps: Caps) -> Result<Origin, Failure> {
        if let Some(folder) = &self.from {
            return run_profile::read(folder);
        }
        let measured = match &self.model {
            Some(model) => self.measured(model)?,
            None => self.profile.iter().map(|file| read(file)).collect::<Result<_, _>>()?,
        };
        if let Some(first) = measured.first() {
            let profile = first.profile.clone();
            let reduction = measured_with(&first.reduction);
            let cores = Some((first.cores as f64, first.full_slowdown));
            let (reduction_name, precision) = (first.reduction.clone(), first.precision.clone());
            let (shards, caps, others) = (None, Some(caps), others(measured)?);
            return Ok(Origin { profile, reduction, reduction_name, precision, shards, cores, caps, others });
        }
        let figures = [self.forward_ms, self.backward_ms, self.optimizer_ms, self.parameters];
        let [Some(forward), Some(backward), Some(optimizer), Some(parameters)] = figures else {
            let missing = FIGURES.iter().zip(figures).filter(|(_, figure)| figure.is_none());
            let missing: Vec<String> =
                missing.map(|(name, _)| format!("--{}", name.replace('_', "-"))).collect();
            return Err(Failure::input(format!(
                "nothing says how long a step of one worker takes; give --model to measure a network now, --from a run, --profile \
                 a file, or figures, of which {} {} missing",
                missing.join(", "),
                if missing.len() == 1 { "is" } else { "are" }
            )));
        };
        // Parts small enough to form buckets of any size.
        const PART: f64 = 64.0 * 1024.0;
        let bytes = 4.0 * parameters;
        let part = PART.max(bytes / 1024.0);
        let profile = StepProfile::even(forward / 1e3, backward / 1e3, optimizer / 1e3, bytes, part);
        let (reduction, reduction_name, precision) = (WireCost::SUM, "sum".into(), "f32".into());
        let (shards, cores, caps, others) = (None, None, Some(caps), Vec::new());
        Ok(Origin { profile, reduction, reduction_name, precision, shards, cores, caps, others })
    }

    /// Measures every batch size with every precision, beginning with the first of both.
    fn measured(&self, model: &str) -> Result<Vec<WorkerProfile>, Failure> {
        let pairs = self
            .precision
            .iter()
            .flat_map(|precision| self.batch_size.iter().map(move |size| (size, precision)));
        pairs.map(|(batch_size, precision)| measure(model, *batch_size, precision)).collect()
    }
}

fn measure(model: &str, batch_size: usize, precision: &str) -> Result<WorkerProfile, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::work(format!("this program: {e}")))?;
    let mut command = Command::new(program);
    command.args(["bench", "profile", "--model", model, "--batch-size", &batch_size.to_string()]);
    command.args(["--precision", precision]);
    let output = command.output().map_err(|e| Failure::work(format!("kolo bench profile: {e}")))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::input(told.trim().trim_start_matches("error: ")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| Failure::work(format!("kolo bench profile printed no profile: {e}")))
}

fn read(file: &std::path::Path) -> Result<WorkerProfile, Failure> {
    let fail = |problem: String| Failure::input(format!("--profile {}: {problem}", file.display()));
    let text = kolo_durable::read_to_string(file).map_err(|e| fail(e.to_string()))?;
    serde_json::from_str(&text)
        .map_err(|e| fail(format!("this is not what `kolo bench profile` prints: {e}")))
}
