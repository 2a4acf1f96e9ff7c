//! Running statistics, such as those of a batch normalization, of each shard or rank. Training does not use
//! them, evaluation does.

/// Treatment of tensors that the forward pass changes ([`Kind::Statistic`](kolo_optim::Kind::Statistic)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statistics {
    /// Every shard starts a step from the same value, which then moves by the mean of the shards' changes,
    /// weighted by their samples and added in tree order: the same bits on any number of ranks.
    #[default]
    PerShard,
    /// Every rank keeps the changes of its own shards, and rank 0's go into checkpoints. They depend on the
    /// number of ranks.
    Local,
}
