//! Synchronization of the shards of a run.

use kolo_ddp::sync::{Exclusion, JobSetting, SYNCS, SyncMode};
use kolo_run_folder::units::counted;
use serde::{Deserialize, Serialize};

use super::defaults::defaults;
use super::{BatchNormalization, Recipe};
use crate::error::Error;

/// Synchronization of the shards: in every step, rarely as islands, with updates that are one step late, or
/// by each worker at its own pace.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SyncConfig {
    /// How often shards synchronize (see below): for example local:H=8, diloco:H=50,outer-lr=0.7, delayed:1
    /// or stale:3
    #[arg(long = "sync", id = "sync", value_name = "NAME", default_value = SYNCS[0].name)]
    pub mode: SyncMode,
    /// With --sync local, post-local or diloco: groups of shards that train apart. Any --nproc gives the
    /// same result [default: one for each shard]
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
    ///
    /// # Errors
    ///
    /// Returns [`Error::Setting`] if another setting excludes it, or islands do not divide the shards.
    pub fn check(&self, recipe: &Recipe) -> Result<(), Error> {
        self.refuse_excluded(&settings(recipe)?)?;
        match self.islands.filter(|count| *count == 0 || !recipe.shards.is_multiple_of(*count)) {
            Some(count) if self.mode.traits().rounds.is_some() => {
                let problem = format!("give a number that divides the {}", counted(recipe.shards, "shard"));
                Err(Error::setting("--islands", count, problem))
            }
            _ => Ok(()),
        }
    }
}

impl SyncConfig {
    /// Checks that a job of so many summation servers can synchronize like this.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Setting`] if the mode needs servers and has none, or the other way round.
    pub fn check_servers(&self, servers: usize) -> Result<(), Error> {
        if servers > 0 {
            return self.refuse_excluded(&[JobSetting::Servers]);
        }
        match self.mode.traits().staleness_bound {
            Some(_) => {
                let problem = "the weights are on servers, of which there are none; give --servers 1 or more";
                Err(Error::setting("--sync", &self.mode, problem))
            }
            None => Ok(()),
        }
    }

    fn refuse_excluded(&self, settings: &[JobSetting]) -> Result<(), Error> {
        match self.mode.exclusion(settings) {
            Some(Exclusion { setting, why }) => {
                Err(Error::setting("--sync", &self.mode, format!("it {why}; {}", remedy(setting))))
            }
            None => Ok(()),
        }
    }
}

/// The settings of a run that some ways to synchronize exclude.
fn settings(recipe: &Recipe) -> Result<Vec<JobSetting>, Error> {
    let mut settings = JobSetting::of(&recipe.ddp()?);
    if recipe.batch_norm == BatchNormalization::Sync {
        settings.push(JobSetting::GlobalBatch);
    }
    // A run is elastic unless its mode cannot be.
    if recipe.backup_steps == 0 {
        settings.push(JobSetting::NoBackups);
    }
    Ok(settings)
}

/// The way out, in the words of the command line.
pub(super) fn remedy(setting: JobSetting) -> &'static str {
    match setting {
        JobSetting::Islands => "leave --islands out, or take local, post-local or diloco",
        JobSetting::Reduction => "leave --reduction at sum",
        JobSetting::KeepingReduction => "take a --reduction that keeps nothing, such as bf16",
        JobSetting::Transforms => "leave --clip-norm out",
        JobSetting::LossScaling => "take --precision bf16",
        JobSetting::NoiseScale => "leave --noise-scale out",
        JobSetting::LocalStatistics => "leave --batch-norm at per-shard",
        JobSetting::GlobalBatch => "leave --batch-norm at per-shard",
        JobSetting::Straggler | JobSetting::Rebalance => "leave --straggler at warn",
        JobSetting::NoBackups => "give --backup-steps 1 or more",
        JobSetting::Turns => "train all networks in each step",
        JobSetting::Tune => "leave --tune out",
        JobSetting::Elastic => "train with workers that stay",
        JobSetting::OneOwner => "give --redundancy 2",
        JobSetting::Servers => "leave --servers out",
        JobSetting::RareSync => "leave --sync at every-step",
        JobSetting::Offload => "leave --offload out",
    }
}
