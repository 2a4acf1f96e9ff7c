//! How often the shards of a run synchronise.

use kolo_ddp::straggler::Policy;
use kolo_ddp::sync::{SYNCS, SyncMode};
use serde::{Deserialize, Serialize};

use super::defaults::defaults;
use super::{BatchNormalisation, Recipe};
use crate::error::Error;

/// When shards synchronise: in every step, or rarely, as islands.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SyncConfig {
    /// How often shards synchronise (see below), as local:H=8 or diloco:H=50,outer-lr=0.7
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
    /// Checks it beside the other settings of a run.
    pub(super) fn check(&self, recipe: &Recipe) -> Result<(), Error> {
        if !self.mode.is_rare() {
            let wrong = |count: usize| {
                let problem =
                    format!("--sync {} has no islands; take local, post-local or diloco", self.mode);
                Error::setting("--islands", count, problem)
            };
            return self.islands.map_or(Ok(()), |count| Err(wrong(count)));
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
}
