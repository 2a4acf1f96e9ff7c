//! What a job asks of its replicas.

use std::sync::Arc;

use crate::buckets::BucketCaps;
use crate::loss_scaling::LossScaling;
use crate::reduction::{self, Reducer};
use crate::statistics::Statistics;
use crate::straggler::Policy;
use crate::sync::SyncMode;
use kolo_optim::ParamGroup;
use kolo_optim::table::Choice;

/// How a job divides and reduces its steps.
#[derive(Clone, Debug)]
pub struct Config {
    /// Equal parts of every global batch. Belongs to the job: with the same number, any world size ends in
    /// the same bits. `None`: one for each rank.
    pub shards: Option<usize>,
    /// A weight for each rank, by which whole shards are divided ([`apportion`](crate::apportion)): for
    /// workers of unequal speed. Changes who computes what, not the bits. Rank 0's count. `None`, or a group
    /// of another size after [`Replica::regroup`](crate::Replica::regroup): equal shares.
    pub shares: Option<Vec<f64>>,
    /// What becomes of a rank that holds the others up. Rank 0's counts.
    pub straggler: Policy,
    /// How large buckets may be. `None`: [`BucketCaps::for_group`].
    pub caps: Option<BucketCaps>,
    /// Whether the job's first steps are used to find out how its gradients travel quickest: bucket cap,
    /// slices, algorithm, who adds how much, connections. The best is kept
    /// ([`StepReport::tuning`](crate::StepReport::tuning)), and found anew where steps come to take another
    /// time; the bits are the same. [`Config::caps`] are what it begins with. It takes some 50 steps, in each
    /// group of an elastic job anew. Refused where no step is one of all shards ([`Config::sync`]), or sums
    /// depend on how they are cut. The same on all ranks.
    pub tune: bool,
    /// How the gradients of all shards become what the optimizer sees: one of
    /// [`REDUCTIONS`](crate::reduction::REDUCTIONS) ([`named`](crate::reduction::named),
    /// [`parse`](crate::reduction::parse)), or one of the user's own. The same on all ranks.
    pub reduction: Arc<dyn Reducer>,
    /// In an elastic job whose reduction keeps something for each shard, or whose islands synchronise rarely:
    /// steps between two copies of that, each of which two more ranks hold, too; of islands a copy is made at
    /// the end of the round in which so many are done. After a death the job goes back to the last copy. 0:
    /// no copies; what a dead worker had kept is lost then, and a warning says so
    /// ([`Warning::ShardStateLost`](crate::Warning::ShardStateLost),
    /// [`Warning::IslandStateLost`](crate::Warning::IslandStateLost)). The bits are the same for any other
    /// number. The same on all ranks. In a job whose updates are one step late, elastic or not: steps after
    /// which all are made, which does decide the bits ([`Replica::end_round`](crate::Replica::end_round)).
    pub backup_every: u64,
    /// What is done to the gradient before the optimizer sees it, one after another: entries of
    /// [`TRANSFORMS`](crate::transform::TRANSFORMS), such as `Choice::new("clip").with("clip_norm", 1.0)`.
    /// The same on all ranks.
    pub transforms: Vec<Choice>,
    /// Learning rates and settings of the optimizer that are others for some tensors, by their names or by
    /// what they are for, such as `ParamGroup::without_decay(["norm", "bias"])`. They apply in order. The
    /// same on all ranks, and after a checkpoint the same as before: they decide the bits.
    pub groups: Vec<ParamGroup>,
    /// Multiplies the loss before the backward pass by a scale that follows overflows, for gradients that are
    /// computed in `f16`; a step that overflows is skipped ([`StepReport::skipped`](crate::StepReport)). A
    /// step waits for all of its gradient then, and where the reduction keeps something from step to step
    /// makes a copy of that. `None`: losses stay as they are. The same on all ranks.
    pub loss_scaling: Option<LossScaling>,
    /// Whether reductions may reach into the next step's forward pass. The bits are the same either way.
    pub forward_overlap: bool,
    /// Whether a step that fails can be done again with other ranks
    /// ([`Replica::regroup`](crate::Replica::regroup)). Where reductions reach into the next forward pass
    /// that takes a copy of the values; within one host they then do not.
    pub elastic: bool,
    /// Steps between two comparisons of the ranks' weights, which find a rank that has gone astray
    /// ([`Error::Drift`](crate::Error::Drift)); 0: never. A comparison takes a pass over the weights and
    /// eight bytes a rank. Steps that are not synchronised
    /// ([`Replica::synchronise`](crate::Replica::synchronise)) leave the ranks with different weights on
    /// purpose: then 0.
    pub verify_every: u64,
    /// What becomes of running statistics.
    pub statistics: Statistics,
    /// Whether the noise scale of the gradient is measured
    /// ([`StepReport::noise_scale`](crate::StepReport::noise_scale)). Needs at least two shards. Every step
    /// then takes one more look at each gradient, and waits for all of its own as with `transforms`. The same
    /// on all ranks.
    pub noise_scale: bool,
    /// How often shards synchronise: every step, or rarely, as [islands](crate::sync), or every step with
    /// updates that are one step late (`delayed`), or through servers that hold the weights, each worker at
    /// its own pace (`stale`, which promises no bits). With islands [`Config::reduction`] is that of the
    /// outer step, and transforms see an island's gradient. The same on all ranks.
    pub sync: SyncMode,
    /// Equal parts of the shards that synchronise every step among themselves, where all do so rarely.
    /// Belongs to the job. `None`: one for each shard.
    pub islands: Option<usize>,
    /// What else the ranks must have alike, by name and in words: the program's own settings, fingerprints of
    /// its data. Compared, like all of the above, where ranks meet, newcomers included; the first that
    /// differs is named ([`Error::SettingsDiffer`](crate::Error::SettingsDiffer)).
    pub stated: Vec<(String, String)>,
}

impl Config {
    /// Whether there are steps of all shards between which no gradient is on its way, as
    /// [`tune`](Config::tune) needs them.
    pub(crate) fn can_be_tuned(&self) -> bool {
        self.sync.traits().is_every_step()
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            shards: None,
            shares: None,
            straggler: Policy::Warn,
            caps: None,
            tune: false,
            reduction: reduction::exact(),
            backup_every: 100,
            transforms: Vec::new(),
            groups: Vec::new(),
            loss_scaling: None,
            forward_overlap: true,
            elastic: false,
            verify_every: 100,
            statistics: Statistics::PerShard,
            noise_scale: false,
            sync: SyncMode::default(),
            islands: None,
            stated: Vec::new(),
        }
    }
}
