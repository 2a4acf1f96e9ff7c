//! Translation of an island's errors to the job's numbers of steps, shards and ranks.

use kolo_comm::Rank;

use super::islands_mode::OwnIsland;
use kolo_reduction::{Error, Origin};

impl OwnIsland {
    /// Returns an error of the island with the job's numbers of steps, shards and ranks.
    pub(super) fn located(&self, error: Error, step: u64) -> Error {
        match error {
            Error::LossNotFinite { loss, mut shards, .. } => {
                for shard in &mut shards {
                    shard.shard += self.first_shard;
                    shard.rank.0 += self.first_rank;
                }
                Error::LossNotFinite { step, loss, shards }
            }
            Error::GradientNotFinite { parameter, value, origin, .. } => {
                Error::GradientNotFinite { step, parameter, value, origin: self.located_origin(origin) }
            }
            Error::StatisticNotFinite { statistic, value, origin, .. } => {
                Error::StatisticNotFinite { step, statistic, value, origin: self.located_origin(origin) }
            }
            Error::NoGradient { .. } => Error::NoGradient { step },
            other => other,
        }
    }

    fn located_origin(&self, origin: Origin) -> Origin {
        match origin {
            Origin::Shard { shard, rank } => {
                Origin::Shard { shard: shard + self.first_shard, rank: Rank(rank.0 + self.first_rank) }
            }
            Origin::Sum => Origin::Sum,
        }
    }
}
