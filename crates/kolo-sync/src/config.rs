//! Settings of a job's replicas.

use std::path::PathBuf;
use std::sync::Arc;

use crate::sharding::Sharding;
use crate::statistics::Statistics;
use crate::sync::SyncMode;
use kolo_optim::table::Choice;
use kolo_optim::{ParamGroup, Selector};
use kolo_reduction::BucketCaps;
use kolo_reduction::reduction::{self, Reducer};
use kolo_step::LossScaling;
use kolo_straggler::Policy;

/// Settings of how a job divides and reduces its steps.
///
/// ```
/// use kolo_reduction::reduction;
/// use kolo_sync::Config;
///
/// let compressed = reduction::parse("top-k:density=0.05")?;
/// let config = Config { shards: Some(4), reduction: compressed, ..Config::default() };
/// assert_eq!(config.shards, Some(4));
/// # Ok::<(), kolo_optim::ChoiceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Equal parts of every global batch. Belongs to the job: with the same number, any world size yields
    /// the same bits. `None`: one for each rank.
    pub shards: Option<usize>,
    /// A weight for each rank, by which whole shards are divided (`apportion`), for workers of unequal speed.
    /// It changes which rank computes what, not the bits. Rank 0's weights apply. `None`, or a group of
    /// another size after `Replica::regroup`: equal shares.
    pub shares: Option<Vec<f64>>,
    /// Treatment of a rank that delays the others. Rank 0's setting applies.
    pub straggler: Policy,
    /// Limits of bucket sizes. `None`: [`BucketCaps::for_group`].
    pub caps: Option<BucketCaps>,
    /// True if the job's first steps search for the fastest transport of gradients: bucket cap, slices,
    /// algorithm, distribution of the sums, connections. The best is kept
    /// ([`StepReport::tuning`](crate::StepReport::tuning)), and searched for anew when the duration of steps
    /// changes; the bits are the same. The search begins with [`Config::caps`] and takes some 50 steps,
    /// again in each group of an elastic job. Refused if no step has all shards ([`Config::sync`]), or if
    /// sums depend on how they are cut. The same on all ranks.
    pub tune: bool,
    /// Reduction of the gradients of all shards to the one that the optimizer sees: one of
    /// [`REDUCTIONS`](kolo_reduction::reduction::REDUCTIONS) ([`named`](kolo_reduction::reduction::named),
    /// [`parse`](kolo_reduction::reduction::parse)), or one of the user's own. The same on all ranks.
    pub reduction: Arc<dyn Reducer>,
    /// Steps between two copies of the state that a reduction keeps for each shard, or of islands that
    /// synchronize rarely, in an elastic job. Two more ranks hold each copy. With islands the copy is made
    /// at the end of the round that reaches this number of steps. After a death the job goes back to the
    /// last copy. 0: no copies; the state of a dead worker is lost then, and a warning reports that
    /// ([`Warning::ShardStateLost`](crate::Warning::ShardStateLost),
    /// [`Warning::IslandStateLost`](crate::Warning::IslandStateLost)). The bits are the same for any other
    /// number. The same on all ranks. In a job whose updates are one step late, elastic or not: steps after
    /// which all are made, which does decide the bits (`Replica::end_round`).
    pub backup_every: u64,
    /// Transforms of the gradient before the optimizer sees it, one after another: entries of
    /// [`TRANSFORMS`](kolo_reduction::transform::TRANSFORMS), such as
    /// `Choice::new("clip").with("clip_norm", 1.0)`. The same on all ranks.
    pub transforms: Vec<Choice>,
    /// Learning rates and settings of the optimizer that differ for some tensors, selected by name or
    /// purpose, such as `ParamGroup::without_decay(["norm", "bias"])`. They apply in order. The same on all
    /// ranks, and after a checkpoint the same as before: they decide the bits.
    pub groups: Vec<ParamGroup>,
    /// Networks that take turns, as those of a GAN. Step n, from 0, trains the tensors of entry n modulo the
    /// number of entries. All others, and their part of the optimizer's state, stay as they are, and the
    /// optimizer counts the updates of each network by itself: the values are those of one optimizer for each
    /// network. Two entries have the same tensors or none in common, and each trained tensor is in one.
    /// Empty: each step trains all. The same on all ranks, and after a checkpoint.
    pub turns: Vec<Vec<Selector>>,
    /// Multiplies the loss before the backward pass by a scale that follows overflows, for gradients that
    /// are computed in `f16`. A step that overflows is skipped ([`StepReport::skipped`](crate::StepReport)).
    /// A step then waits for all of its gradient, and copies the state that the reduction keeps from step to
    /// step, if any. `None`: losses stay as they are. The same on all ranks.
    pub loss_scaling: Option<LossScaling>,
    /// True if reductions may overlap with the next step's forward pass. The bits are the same either way.
    pub forward_overlap: bool,
    /// True if a failed step can be repeated with other ranks (`Replica::regroup`). If reductions overlap
    /// with the next forward pass, that takes a copy of the values; within one host they then do not overlap.
    pub elastic: bool,
    /// Steps between two comparisons of the ranks' weights, which find a rank whose weights have diverged
    /// ([`Error::Drift`](kolo_reduction::Error::Drift)); 0: never. A comparison takes a pass over the weights
    /// and eight bytes a rank. Steps without synchronization (`Replica::synchronize`) leave the ranks with
    /// different weights on purpose: then 0.
    pub verify_every: u64,
    /// Treatment of running statistics.
    pub statistics: Statistics,
    /// State of which each worker holds a part only. The bits are the same either way. The same on all ranks.
    pub sharding: Sharding,
    /// Workers that hold each part of a divided state: its owners. All of them receive the same sum and make
    /// the same update. With 2 or more the job may be elastic: a worker that dies, leaves or joins does not
    /// change the bits. In a group of fewer workers each holds everything. Without [`Config::sharding`] it
    /// must be 1. The same on all ranks.
    pub redundancy: usize,
    /// Folder for the optimizer's state, which then is in a file instead of memory: read ahead and written
    /// behind, block by block, while updates run. The file has no name, so nothing stays behind. The bits are
    /// the same either way. Each rank may have a folder of its own, or `None`.
    pub offload: Option<PathBuf>,
    /// True if the noise scale of the gradient is measured
    /// ([`StepReport::noise_scale`](crate::StepReport::noise_scale)). Needs at least two shards. Every step
    /// then reads each gradient once more, and waits for the whole gradient as with `transforms`. The same
    /// on all ranks.
    pub noise_scale: bool,
    /// Synchronization of shards: every step; or rarely, as [islands](crate::sync); or every step with
    /// updates that are one step late (`delayed`); or through servers that hold the weights, each worker at
    /// its own pace (`stale`, which promises no bits). With islands [`Config::reduction`] is that of the
    /// outer step, and transforms see an island's gradient. The same on all ranks.
    pub sync: SyncMode,
    /// Equal parts of the shards that synchronize every step among themselves, where all shards do so
    /// rarely. Belongs to the job. `None`: one for each shard.
    pub islands: Option<usize>,
    /// Further settings that must be the same on all ranks, by name and as text: the program's own settings,
    /// fingerprints of its data. They are compared, like all of the above, when ranks meet, newcomers
    /// included. The first that differs is named
    /// ([`Error::SettingsDiffer`](kolo_reduction::Error::SettingsDiffer)).
    pub stated: Vec<(String, String)>,
}

impl Config {
    /// Returns true if some steps have all shards and no gradient in flight between them, as
    /// [`tune`](Config::tune) requires.
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
            turns: Vec::new(),
            loss_scaling: None,
            forward_overlap: true,
            elastic: false,
            verify_every: 100,
            statistics: Statistics::PerShard,
            sharding: Sharding::Nothing,
            redundancy: 1,
            offload: None,
            noise_scale: false,
            sync: SyncMode::default(),
            islands: None,
            stated: Vec::new(),
        }
    }
}
