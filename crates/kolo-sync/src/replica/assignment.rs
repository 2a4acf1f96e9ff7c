//! The number of shards of each rank when a group begins, and the policy for its stragglers.

use kolo_comm::{Collective, DType, Group, Rank};

use super::tuning;
use crate::config::Config;
use crate::sharding::Sharding;
use crate::sync::{self, JobSetting};
use kolo_reduction::Error;
use kolo_sampler::{apportion, equal, of_workers};
use kolo_straggler::Policy;

/// Returns an error for settings that are invalid whatever the group is.
pub fn check(config: &Config) -> Result<(), Error> {
    kolo_reduction::reduction::check(&*config.reduction)?;
    if config.straggler == Policy::Drop && !config.elastic {
        let problem = "a straggler can only be dropped by a replica that can continue without it: set `Config::elastic`";
        return Err(Error::Setting(problem.into()));
    }
    refuse_sharding(config, &JobSetting::of(config))?;
    if config.redundancy != 1 && (config.redundancy == 0 || config.sharding == Sharding::Nothing) {
        let problem =
            "give 1, or more together with `Config::sharding`, of which each part has that many owners";
        return Err(Error::Setting(format!("`Config::redundancy` is {}; {problem}", config.redundancy)));
    }
    if config.redundancy > 1 && config.sharding == Sharding::Host {
        let problem = "sharding `host` keeps state in memory that outlives each worker; leave `Config::redundancy` at 1";
        return Err(Error::Setting(problem.into()));
    }
    if config.noise_scale && !config.reduction.is_sum() {
        let name = config.reduction.name();
        let problem = "the noise scale needs the sum of all gradients, which no step has with the reduction";
        return Err(Error::Setting(format!("{problem} {name}; take the reduction sum")));
    }
    if !config.turns.is_empty() && config.loss_scaling.is_some() {
        let problem = "a step that overflows is skipped with loss scaling, so networks could not take turns step by step; compute in \
                       bf16 or f32, without `Config::loss_scaling`, or leave `Config::turns` empty";
        return Err(Error::Setting(problem.into()));
    }
    if !config.turns.is_empty() && config.reduction.keeps_state() {
        let name = config.reduction.name();
        let problem = "keeps a part of each gradient for the next step, in which other networks are trained (`Config::turns`)";
        return Err(Error::Setting(format!(
            "reduction {name} {problem}; take one that keeps nothing, such as `sum` or `bf16`"
        )));
    }
    if let Some(scaling) = &config.loss_scaling {
        scaling.check()?;
    }
    Ok(())
}

/// Returns an error if the division of the job's state excludes one of these settings.
fn refuse_sharding(config: &Config, settings: &[JobSetting]) -> Result<(), Error> {
    match config.sharding.exclusion(settings) {
        Some(exclusion) => {
            let (name, problem) = (config.sharding.name(), exclusion.problem());
            Err(Error::Setting(format!("sharding `{name}` {problem}")))
        }
        None => Ok(()),
    }
}

/// Returns an error for ranks that cannot train together: servers only, a server as rank 0, too few shards,
/// or weights of shares for another number of workers.
pub(crate) fn check_ranks(
    config: &Config,
    shards: usize,
    group: &Group,
    servers: &[bool],
) -> Result<(), Error> {
    let (count, workers) = (servers.iter().filter(|server| **server).count(), count_workers(servers));
    let refuse = |problem: String| Err(Error::Setting(problem));
    if workers == 0 {
        return refuse(format!("all of {count} ranks are summation servers; start workers, which train"));
    }
    if servers[0] {
        let problem = "rank 0 is a summation server, but must be a worker, which holds the weights";
        return refuse(format!("{problem}: start a worker on the first node"));
    }
    if count > 0 && group.explain(&Collective::Barrier, 1, DType::U8).is_none() {
        let transport = group.transport();
        return refuse(format!(
            "{transport} adds by itself and needs no summation servers: leave out --servers"
        ));
    }
    if count == 0 && config.sync.traits().staleness_bound.is_some() {
        let sync = &config.sync;
        return refuse(format!(
            "synchronization `{sync}` needs summation servers, which hold the weights: give --servers 1 or more"
        ));
    }
    if let Some(exclusion) = config.sync.exclusion(&[JobSetting::Servers]).filter(|_| count > 0) {
        return Err(sync::mode::refused(config, &exclusion.problem()));
    }
    if count > 0 {
        refuse_sharding(config, &[JobSetting::Servers])?;
    }
    tuning::check_group(config, group)?;
    if config.noise_scale && shards < 2 {
        let problem = "the noise scale is measured between two sizes of a batch, so a step needs at least 2 shards; \
                       it has 1 (`Config::shards`)";
        return Err(Error::Setting(problem.into()));
    }
    match &config.shares {
        // An elastic job that has lost or gained workers has weights for another number, and ignores them.
        Some(weights) if !config.elastic || weights.len() == workers => {
            let wrong = |problem| Error::Setting(format!("`Config::shares`: {problem}"));
            apportion(shards, weights, workers).map(drop).map_err(wrong)
        }
        _ => Ok(()),
    }
}

/// Number of ranks that are not servers.
pub(crate) fn count_workers(servers: &[bool]) -> usize {
    servers.iter().filter(|server| !**server).count()
}

/// Agrees on the initial shares of a group's ranks and on the policy for stragglers. All ranks take rank
/// 0's, so none can differ.
pub(crate) fn agree(
    group: &Group,
    config: &Config,
    shards: usize,
    servers: &[bool],
) -> Result<(Vec<usize>, Policy), Error> {
    let (world, workers) = (group.world_size(), count_workers(servers));
    let weighted = config.shares.as_ref().and_then(|weights| apportion(shards, weights, workers).ok());
    let shares = of_workers(&weighted.unwrap_or_else(|| equal(shards, workers)), servers);
    let policy = Policy::ALL.iter().position(|(_, policy)| *policy == config.straggler).unwrap_or(0);
    let mut words: Vec<i64> = shares.iter().map(|share| *share as i64).chain([policy as i64]).collect();
    group.broadcast(&mut words, Rank(0))?;
    let policy = Policy::ALL.get(words[world] as usize).map_or(config.straggler, |(_, policy)| *policy);
    Ok((words[..world].iter().map(|share| *share as usize).collect(), policy))
}
