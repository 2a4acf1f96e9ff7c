//! Settings of a job that a way to synchronize, or a division of its state, excludes.

use crate::config::Config;
use crate::sharding::Sharding;
use crate::statistics::Statistics;
use kolo_reduction::reduction::REDUCTIONS;
use kolo_straggler::Policy;

/// A setting that some ways to synchronize, or a division of the state, exclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobSetting {
    /// A number of islands.
    Islands,
    /// A reduction other than the sum.
    Reduction,
    /// A reduction that keeps state from step to step.
    KeepingReduction,
    /// Transforms of the gradient.
    Transforms,
    /// Loss scaling, which computing in f16 needs.
    LossScaling,
    /// Measuring the noise scale.
    NoiseScale,
    /// Separate running statistics on each worker.
    LocalStatistics,
    /// Batch normalization over the global batch, or another layer that sums over it.
    GlobalBatch,
    /// A policy for stragglers other than warning.
    Straggler,
    /// Moving shards from slow workers to others.
    Rebalance,
    /// An elastic job without copies to go back to.
    NoBackups,
    /// Networks that take turns.
    Turns,
    /// Tuning.
    Tune,
    /// An elastic job.
    Elastic,
    /// An elastic job in which each part of a divided state has one owner.
    OneOwner,
    /// Summation servers.
    Servers,
    /// A way to synchronize other than every step.
    RareSync,
    /// The optimizer's state in a file.
    Offload,
}

use JobSetting::{
    Elastic, GlobalBatch, Islands, KeepingReduction, LocalStatistics, LossScaling, NoBackups, NoiseScale,
    Offload, OneOwner, RareSync, Rebalance, Reduction, Servers, Straggler, Transforms, Tune, Turns,
};

impl JobSetting {
    /// Returns the settings that a configuration uses. It does not know [`GlobalBatch`], a property of a
    /// layer, and [`Servers`], ranks of the group.
    pub fn of(config: &Config) -> Vec<JobSetting> {
        let settings = [
            (Islands, config.islands.is_some_and(|islands| islands != 1)),
            (Reduction, config.reduction.name() != REDUCTIONS[0].name),
            (KeepingReduction, config.reduction.keeps_state()),
            (Transforms, !config.transforms.is_empty()),
            (LossScaling, config.loss_scaling.is_some()),
            (NoiseScale, config.noise_scale),
            (LocalStatistics, config.statistics == Statistics::Local),
            (Straggler, config.straggler != Policy::Warn),
            (Rebalance, config.straggler == Policy::Rebalance),
            (NoBackups, config.elastic && config.backup_every == 0),
            (Turns, !config.turns.is_empty()),
            (Tune, config.tune),
            (Elastic, config.elastic),
            (OneOwner, config.elastic && config.redundancy < 2),
            (RareSync, !config.sync.traits().is_every_step()),
            (Offload, config.offload.is_some()),
        ];
        settings.into_iter().filter(|(_, is_set)| *is_set).map(|(setting, _)| setting).collect()
    }

    /// Advice for a program that configures a job by [`Config`].
    fn remedy(self) -> &'static str {
        match self {
            Islands => "leave `Config::islands` at `None`, or take `local` or `diloco`",
            Reduction => "leave `Config::reduction` at `sum`",
            KeepingReduction => "take a reduction that keeps nothing, such as `sum` or `bf16`",
            Transforms => "leave `Config::transforms` empty",
            LossScaling => "compute in bf16 or f32, without `Config::loss_scaling`",
            NoiseScale => "leave `Config::noise_scale` out",
            LocalStatistics => "leave `Config::statistics` at `PerShard`",
            GlobalBatch => "take layers that need no sums over the global batch",
            Straggler | Rebalance => "leave `Config::straggler` at `Warn`",
            NoBackups => "make copies (`Config::backup_every`)",
            Turns => "leave `Config::turns` empty",
            Tune => "leave `Config::tune` out",
            Elastic => "train with workers that stay, without `Config::elastic`",
            OneOwner => "set `Config::redundancy` to 2",
            Servers => "start workers only",
            RareSync => "leave `Config::sync` at `every-step`",
            Offload => "leave `Config::offload` at `None`",
        }
    }
}

/// A setting that is excluded, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The setting.
    pub setting: JobSetting,
    /// Reason, as the rest of a sentence about the mode, or about the division of the state.
    pub why: &'static str,
}

impl Exclusion {
    /// Reason, and advice for a program that configures a job by [`Config`].
    pub fn problem(&self) -> String {
        format!("{}; {}", self.why, self.setting.remedy())
    }
}

impl Sharding {
    /// Returns the first of a job's settings that it excludes, if there is one.
    pub fn exclusion(self, settings: &[JobSetting]) -> Option<Exclusion> {
        let excludes = match self {
            Sharding::Nothing => &OF_GRADIENTS[..0],
            Sharding::Optimizer => &OF_GRADIENTS[1..],
            Sharding::Gradients | Sharding::Parameters => OF_GRADIENTS,
            Sharding::Host => OF_HOST,
        };
        let mut found = excludes.iter().filter(|(setting, _)| settings.contains(setting));
        found.next().map(|(setting, why)| Exclusion { setting: *setting, why })
    }
}

/// Settings that a division of gradients excludes; all but the first are those that a division of the
/// optimizer's state excludes.
const OF_GRADIENTS: &[(JobSetting, &str)] = &[
    (
        Reduction,
        "sends each worker its part of the exact sum only, and other reductions give each worker everything (`optimizer` \
         takes them)",
    ),
    (RareSync, "needs steps of all shards that end with all of their updates"),
    (
        OneOwner,
        "keeps each part of the optimizer's state on one worker, so a job cannot continue without one that dies",
    ),
    (LocalStatistics, "gives all workers the same running statistics"),
    (Servers, "has each worker add and step a part already"),
];

/// Settings that one copy of the state for all workers of a host excludes.
const OF_HOST: &[(JobSetting, &str)] = &[
    (RareSync, "needs steps of all shards that end with all of their updates"),
    (
        KeepingReduction,
        "has no older copies of the state, to which a job with such a reduction goes back after a death",
    ),
    (Offload, "keeps one copy of the optimizer's state in memory that workers share"),
    (LocalStatistics, "gives all workers the same running statistics"),
    (Servers, "has each worker add and step a part already"),
];

/// Exclusion of islands, in all other modes.
pub(super) const NO_ISLANDS: (JobSetting, &str) = (Islands, "has no islands");

/// Exclusion of tuning, in all modes but `every-step`.
pub(super) const NO_PLAIN_STEP: (JobSetting, &str) = (
    Tune,
    "has no two steps of all shards, with no gradient on its way between them, where the way that gradients travel could change",
);

/// Exclusion of turns, in all modes but `every-step`.
pub(super) const NO_TURNS: (JobSetting, &str) =
    (Turns, "does not end each step with all of its updates, so networks cannot take turns step by step");

/// Exclusion of the global batch, which islands and workers at their own pace do not have.
pub(super) const NO_GLOBAL_BATCH: (JobSetting, &str) =
    (GlobalBatch, "has no batch of all shards over which a layer could sum, such as batch normalization");
