//! Options for a job's choices: buckets, algorithm, reduction, synchronization, accumulation.

use clap::Args;
use kolo::Failure;
use kolo_burn_train::Recipe;
use kolo_ddp::reduction;
use kolo_ddp::sync::SyncMode;
use kolo_plan::step::{Caps, Choices, Pick, StepProfile, Sync, WireCost};

use super::origin::Origin;
use crate::commands::plan::numbers::positive;
use crate::options::algorithms;

/// Options for a job's choices: buckets, algorithm, reduction, synchronization, accumulation.
#[derive(Args)]
pub(super) struct ChoiceOptions {
    /// Size limit of a bucket in MiB. The first and the last bucket have at most 1 MiB [default: that of
    /// --from, else 25; 4 over sockets]
    #[arg(long, value_name = "MIB", value_parser = positive)]
    bucket_cap_mb: Option<f64>,
    /// Algorithm of the collectives [default: the fastest that keeps the bits]
    #[arg(long, value_parser = algorithms())]
    algorithm: Option<String>,
    /// How Kolo reduces gradients, as for `kolo train` [default: that of the profile, else sum]
    #[arg(long, value_name = "NAME[:SETTINGS]")]
    pub(super) reduction: Option<String>,
    /// How often workers synchronize, as for `kolo train`: every-step, delayed:1, local or diloco
    #[arg(long, value_name = "NAME", default_value = "every-step")]
    sync: SyncMode,
    /// Micro-batches that a worker accumulates before a step
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    accumulate: usize,
    /// Wait for all buckets before the next forward pass, as other frameworks do
    #[arg(long)]
    no_forward_overlap: bool,
}

impl ChoiceOptions {
    pub(super) fn caps(&self) -> Option<Caps> {
        self.bucket_cap_mb.map(Caps::of_mib)
    }

    pub(super) fn choose(&self, origin: &Origin) -> Result<(StepProfile, Choices), Failure> {
        let (profile, reduction) = match &self.reduction {
            None => (origin.profile.clone(), origin.reduction),
            Some(text) => reduced(text, origin)?,
        };
        if self.accumulate == 0 {
            return Err(Failure::input("--accumulate 0: it must be at least 1"));
        }
        let named = |name: &String| {
            kolo_comm::schedule::ALGORITHMS.iter().map(|algorithm| algorithm.name).find(|known| known == name)
        };
        let choices = Choices {
            caps: self.caps().or(origin.caps),
            pick: self.algorithm.as_ref().and_then(named).map_or(Pick::Exact, Pick::Named),
            reduction,
            sync: sync(&self.sync)?,
            accumulate: self.accumulate,
            overlap_forward: !self.no_forward_overlap,
            agree: true,
        };
        let job = self.recipe(origin);
        job.sync.check(&job).map_err(|error| Failure::input(error.to_string()))?;
        Ok((profile, choices))
    }

    /// Returns the recipe of such a job, as far as it may exclude a choice.
    pub(super) fn recipe(&self, origin: &Origin) -> Recipe {
        let reduction = self.reduction.as_ref().unwrap_or(&origin.reduction_name);
        let mut job = Recipe::default();
        // A reduction of the program's own is known to its measurement only.
        if reduction::parse(reduction).is_ok() {
            job.reduction.clone_from(reduction);
        }
        job.precision.compute = origin.precision.clone();
        job.sync.mode = self.sync.clone();
        job
    }
}

/// Returns the profile of a sum as it would be with the reduction that `text` names.
pub(super) fn reduced(text: &str, origin: &Origin) -> Result<(StepProfile, WireCost), Failure> {
    let refuse = |problem: &str| Failure::input(format!("--reduction {text}: {problem}"));
    let reducer = reduction::parse(text).map_err(Failure::input)?;
    let cost = reducer.wire_cost().ok_or_else(|| refuse("its cost is not known"))?;
    if !origin.reduction.is_exact {
        return match origin.reduction == cost {
            true => Ok((origin.profile.clone(), cost)),
            false => Err(refuse(
                "the profile was measured with another one, and only an exact sum's can be changed",
            )),
        };
    }
    let advice = "its bytes depend on the shapes of the tensors; measure it: kolo bench profile --reduction";
    let bytes = cost.bytes_per_element.ok_or_else(|| refuse(&format!("{advice} {text}")))?;
    Ok((origin.profile.sending(bytes), cost))
}

fn sync(mode: &SyncMode) -> Result<Sync, Failure> {
    if mode.traits().staleness_bound.is_some() {
        return Err(Failure::input(format!(
            "--sync {mode}: kolo plan does not predict servers that hold the weights"
        )));
    }
    let rounds = mode.traits().rounds.map(|rounds| Sync::Rounds(rounds.steps));
    Ok(rounds.unwrap_or(if mode.traits().is_delayed { Sync::Delayed } else { Sync::EveryStep }))
}
