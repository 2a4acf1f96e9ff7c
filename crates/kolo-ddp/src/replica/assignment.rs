//! Who has how many shards when a group begins, and what becomes of stragglers in it.

use kolo_comm::{Group, Rank};

use crate::config::Config;
use crate::error::Error;
use crate::shares::{apportion, equal};
use crate::straggler::Policy;

/// Refuses settings that can be seen to be wrong before the ranks meet.
pub(super) fn check(config: &Config, shards: usize, world: usize) -> Result<(), Error> {
    if config.straggler == Policy::Drop && !config.elastic {
        let problem =
            "a straggler can only be dropped by a replica that can go on without it: set `Config::elastic`";
        return Err(Error::Setting(problem.into()));
    }
    if config.noise_scale && shards < 2 {
        let problem = "the noise scale is measured between two sizes of a batch, so a step needs at least 2 shards; \
                       it has 1 (`Config::shards`)";
        return Err(Error::Setting(problem.into()));
    }
    if config.noise_scale && !config.reduction.is_sum() {
        let name = config.reduction.name();
        let problem = "the noise scale needs the sum of all gradients, which no step has with the reduction";
        return Err(Error::Setting(format!("{problem} {name}; take the reduction sum")));
    }
    match &config.shares {
        // A job that has lost workers, or got more, has weights for another number.
        Some(weights) if !config.elastic || weights.len() == world => {
            let wrong = |problem| Error::Setting(format!("`Config::shares`: {problem}"));
            apportion(shards, weights, world).map(drop).map_err(wrong)
        }
        _ => Ok(()),
    }
}

/// The shares with which the ranks of a group begin, and what becomes of stragglers; rank 0's for all, so
/// that no rank can differ.
pub(super) fn agree(group: &Group, config: &Config, shards: usize) -> Result<(Vec<usize>, Policy), Error> {
    let world = group.world_size();
    let weighted = config.shares.as_ref().and_then(|weights| apportion(shards, weights, world).ok());
    let shares = weighted.unwrap_or_else(|| equal(shards, world));
    let policy = Policy::ALL.iter().position(|(_, policy)| *policy == config.straggler).unwrap_or(0);
    let mut words: Vec<i64> = shares.iter().map(|share| *share as i64).chain([policy as i64]).collect();
    group.broadcast(&mut words, Rank(0))?;
    let policy = Policy::ALL.get(words[world] as usize).map_or(config.straggler, |(_, policy)| *policy);
    Ok((words[..world].iter().map(|share| *share as usize).collect(), policy))
}
