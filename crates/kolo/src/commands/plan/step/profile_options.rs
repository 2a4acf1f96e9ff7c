//! What one worker does in a step: measured, or from figures.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use kolo_plan::step::{Caps, REDUCTIONS, ReductionKind, StepProfile};

use super::super::positive;
use super::run_profile;
use crate::bench::profile::WorkerProfile;
use kolo::Failure;

/// What one worker does in a step: measured, or from figures.
#[derive(Args)]
pub(super) struct ProfileOptions {
    /// Take the step of the run in this folder: its passes, its optimizer, its buckets
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = FIGURES, conflicts_with_all = ["profile", "model"])]
    from: Option<PathBuf>,
    /// Take the step that `kolo bench profile` has printed into this file
    #[arg(long, value_name = "FILE", conflicts_with_all = FIGURES, conflicts_with = "model")]
    profile: Option<PathBuf>,
    /// Measure the step of this network here and now, as `kolo bench profile` does
    #[arg(long, conflicts_with_all = FIGURES)]
    model: Option<String>,
    /// With --model: images a worker
    #[arg(long, default_value_t = 32, requires = "model")]
    batch_size: usize,
    /// Milliseconds of one worker's forward pass
    #[arg(long, value_name = "MS", value_parser = positive, required_unless_present_any = MEASURED)]
    forward_ms: Option<f64>,
    /// Milliseconds of its backward pass
    #[arg(long, value_name = "MS", value_parser = positive, required_unless_present_any = MEASURED)]
    backward_ms: Option<f64>,
    /// Milliseconds of its optimizer
    #[arg(long, value_name = "MS", value_parser = positive, required_unless_present_any = MEASURED)]
    optimizer_ms: Option<f64>,
    /// Parameters of the model, in f32
    #[arg(long, value_name = "NUMBER", value_parser = positive, required_unless_present_any = MEASURED)]
    parameters: Option<f64>,
}

/// What is said instead of figures.
const MEASURED: [&str; 3] = ["from", "profile", "model"];
/// What a measured step says instead.
const FIGURES: [&str; 4] = ["forward_ms", "backward_ms", "optimizer_ms", "parameters"];

/// A profile, and what else is known of where it was measured.
pub(super) struct Origin {
    pub(super) profile: StepProfile,
    /// The reduction with which it was measured.
    pub(super) reduction: &'static ReductionKind,
    /// Cores of the host, and how many times as long a step takes when all of them compute.
    pub(super) cores: Option<(f64, f64)>,
    /// The buckets that a job would have, unless those of the profile are a job's.
    pub(super) caps: Option<Caps>,
}

impl ProfileOptions {
    /// The profile; `caps` are those of a job on the cluster that is asked for.
    pub(super) fn origin(&self, caps: Caps) -> Result<Origin, Failure> {
        let known = |name: &str| ReductionKind::named(name.split(':').next().unwrap_or(name));
        if let Some(folder) = &self.from {
            let (profile, reduction) = run_profile::read(folder)?;
            let reduction = known(&reduction).unwrap_or(&REDUCTIONS[0]);
            return Ok(Origin { profile, reduction, cores: None, caps: None });
        }
        let measured = match (&self.profile, &self.model) {
            (Some(file), _) => Some(read(file)?),
            (None, Some(model)) => Some(self.measured(model)?),
            (None, None) => None,
        };
        if let Some(measured) = measured {
            let reduction = known(&measured.reduction).unwrap_or(&REDUCTIONS[0]);
            let cores = Some((measured.cores as f64, measured.full_slowdown));
            return Ok(Origin { profile: measured.profile, reduction, cores, caps: Some(caps) });
        }
        let seconds = |ms: Option<f64>| ms.unwrap_or_default() / 1e3;
        let [forward, backward, optimizer] =
            [self.forward_ms, self.backward_ms, self.optimizer_ms].map(seconds);
        // Small parts, of which buckets of any size can be made.
        const PART: f64 = 64.0 * 1024.0;
        let bytes = 4.0 * self.parameters.unwrap_or_default();
        let part = PART.max(bytes / 1024.0);
        let profile = StepProfile::even(forward, backward, optimizer, bytes, part);
        Ok(Origin { profile, reduction: &REDUCTIONS[0], cores: None, caps: Some(caps) })
    }

    fn measured(&self, model: &str) -> Result<WorkerProfile, Failure> {
        let program = std::env::current_exe().map_err(|e| Failure::work(format!("this program: {e}")))?;
        let mut command = Command::new(program);
        command.args(["bench", "profile", "--model", model, "--batch-size", &self.batch_size.to_string()]);
        let output = command.output().map_err(|e| Failure::work(format!("kolo bench profile: {e}")))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::input(told.trim().trim_start_matches("error: ")));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|e| Failure::work(format!("kolo bench profile printed no profile: {e}")))
    }
}

fn read(file: &std::path::Path) -> Result<WorkerProfile, Failure> {
    let fail = |problem: String| Failure::input(format!("--profile {}: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| fail(e.to_string()))?;
    serde_json::from_str(&text)
        .map_err(|e| fail(format!("this is not what `kolo bench profile` prints: {e}")))
}
