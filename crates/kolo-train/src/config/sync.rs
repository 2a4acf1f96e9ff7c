//! Synchronization of the shards of a run.

use kolo_ddp::reduction::{self, REDUCTIONS};
use kolo_ddp::straggler::Policy;
use kolo_ddp::sync::{SYNCS, SyncMode};
use serde::{Deserialize, Serialize};

use super::defaults::defaults;
use super::{BatchNormalisation, Recipe};
use crate::error::Error;

/// Synchronization of the shards: in every step, rarely as islands, with updates that are one step late, or
/// by each worker at its own pace.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SyncConfig {
    /// How often shards synchronise (see below), as local:H=8, diloco:H=50,outer-lr=0.7, delayed:1 or, with
    /// --servers, stale:3
    #[arg(long = "sync", id = "sync", value_name = "NAME", default_value = SYNCS[0].name)]
    pub mode: SyncMode,
    /// Equal parts of the shards that --sync local, post-local or diloco lets train apart, the same result
    /// for any --nproc [default: one for each shard]
    #[arg(long)]
    pub islands: Option<usize>,
}

impl Default for SyncConfig {
    fn default() -> Self {
        defaults()
    }
}

impl SyncConfig {
    /// Checks the mode together with the other settings of a run.
    pub(super) fn check(&self, recipe: &Recipe) -> Result<(), Error> {
        if self.mode.is_delayed() {
            self.check_delayed(recipe)?;
        }
        if !self.mode.is_rare() {
            let wrong = |count: usize| {
                let problem =
                    format!("--sync {} has no islands; take local, post-local or diloco", self.mode);
                Error::setting("--islands", count, problem)
            };
            self.islands.map_or(Ok(()), |count| Err(wrong(count)))?;
            return self.check_stale(recipe);
        }
        if let Some(count) = self.islands.filter(|count| *count == 0 || !recipe.shards.is_multiple_of(*count))
        {
            let problem = format!("give a number that divides the {} shards", recipe.shards);
            return Err(Error::setting("--islands", count, problem));
        }
        let refused = |problem: &str| Err(Error::setting("--sync", &self.mode, problem));
        match recipe.batch_norm {
            BatchNormalisation::PerShard => {}
            BatchNormalisation::Sync => {
                return refused("islands have no batch in common, which --batch-norm sync normalises over");
            }
            BatchNormalisation::Local => {
                return refused(
                    "the outer step averages running statistics, which --batch-norm local keeps apart",
                );
            }
        }
        if recipe.noise_scale {
            return refused("no step has a batch of all islands, which --noise-scale is measured with");
        }
        if recipe.straggler()? != Policy::Warn {
            return refused(
                "shards stay with the worker that has their island, so leave --straggler at warn",
            );
        }
        Ok(())
    }

    /// Checks asynchronous training together with the other settings of a run.
    fn check_stale(&self, recipe: &Recipe) -> Result<(), Error> {
        if self.mode.staleness_bound().is_none() {
            return Ok(());
        }
        let problem = if recipe.batch_norm == BatchNormalisation::Sync {
            "each worker is at a step of its own, so there is no batch of all, which --batch-norm sync normalises over"
        } else if recipe.batch_norm == BatchNormalisation::Local {
            "the servers keep running statistics, which --batch-norm local keeps apart"
        } else if recipe.noise_scale {
            "no step has a batch of all workers, which --noise-scale is measured with"
        } else if recipe.straggler()? != Policy::Warn {
            "each worker goes at its own pace, so leave --straggler at warn"
        } else if recipe.reduction()?.name() != REDUCTIONS[0].name {
            "each gradient goes to the servers as it is, so leave --reduction at sum"
        } else if !recipe.transforms.0.is_empty() {
            "nobody has the gradient of all shards, which clipping looks at; leave it out"
        } else if recipe.precision.loss_scaling()?.is_some() {
            "no step is of all shards, in which they could agree on an overflow; take --precision bf16"
        } else {
            return Ok(());
        };
        Err(Error::setting("--sync", &self.mode, problem))
    }

    /// Refuses settings that exclude updates that are one step late.
    fn check_delayed(&self, recipe: &Recipe) -> Result<(), Error> {
        let refused = |problem: &str| Err(Error::setting("--sync", &self.mode, problem));
        let reducer = reduction::parse(&recipe.reduction)?;
        if reducer.keeps_state() {
            return refused(&format!(
                "--reduction {} goes on from what it has kept of the last gradient, which is still on its way; take one that keeps \
                 nothing, such as bf16",
                reducer.name()
            ));
        }
        if recipe.precision.loss_scaling()?.is_some() {
            return refused(
                "--precision f16 scales the next loss before it is known whether the last one has overflowed; take bf16",
            );
        }
        if recipe.backup_steps == 0 {
            return refused(
                "--backup-steps 0: a worker's death would lose the gradient on its way, and there would be no copy to go back to; give 1 \
                 or more",
            );
        }
        if recipe.straggler()? == Policy::Rebalance {
            return refused(
                "--straggler rebalance moves shards when times say so, and would have to wait for the gradient on its way; leave it \
                 at warn",
            );
        }
        Ok(())
    }
}
