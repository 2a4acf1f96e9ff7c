//! Keeping pace: who has how many shards at first, each rank's own times, and what follows from the times of all.

use std::time::Duration;

use kolo_comm::{Group, Rank};

use super::{Config, Replica};
use crate::error::Error;
use crate::shares::{apportion, equal};
use crate::straggler::{Policy, Scout, Straggler, Times};

/// Refuses settings that can be seen to be wrong before the ranks meet.
pub(super) fn check(config: &Config, shards: usize, world: usize) -> Result<(), Error> {
    if config.straggler == Policy::Drop && !config.elastic {
        let problem =
            "a straggler can only be dropped by a replica that can go on without it: set `Config::elastic`";
        return Err(Error::Setting(problem.into()));
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

/// The shares with which the ranks of a group begin, and what becomes of stragglers; rank 0's for all, so that no rank
/// can differ.
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

impl Replica {
    /// The training thread has waited so long for data since the last step: for [`StepReport::straggler`](super::StepReport), which
    /// else takes that time for computing.
    pub fn data_waited(&mut self, time: Duration) {
        self.clock.data_waited(time);
    }

    /// The training thread has waited so long for other ranks in the middle of its passes ([`lockstep`](crate::lockstep)).
    pub fn exchange_waited(&mut self, time: Duration) {
        self.reducer.add_exposed(time);
    }

    /// This rank's part of the step is done. If a look at all ranks is due its times travel with the agreement.
    pub(super) fn passes_over(&mut self) {
        self.clock.passes_over(self.reducer.exposed());
        if !self.reducer.is_synchronised() {
            // Not all ranks need have come here equally often with steps that count.
            self.clock.forget();
        } else if self.clock.is_full() && self.group.world_size() > 1 {
            let (shards, buckets) = (self.reducer.shards().len(), self.reducer.buckets().count());
            self.reducer.tell(self.clock.take(shards, buckets).encode());
        }
    }

    /// What follows from the times of all ranks, if they were told in this step: a rank that holds the others up, and whether
    /// shards have moved. All ranks conclude the same.
    pub(super) fn look_around(&mut self) -> Result<(Option<Straggler>, bool), Error> {
        let Some(table) = self.reducer.take_told() else { return Ok((None, false)) };
        let times = Times::decode(&table, self.group.world_size());
        log::debug!("times of all ranks: {times:?}");
        let verdict = self.scout.look(&times);
        let speaks = self.group.rank() == Rank(0);
        if let Some(straggler) = verdict.straggler.as_ref().filter(|_| speaks) {
            log::warn!("{}", straggler.reason);
        }
        let Some(shed) = verdict.shed else { return Ok((verdict.straggler, false)) };
        self.settle()?;
        let moved = self.reducer.reshare(&shed.shares)?;
        match &moved {
            Ok(()) if speaks => log::warn!("{}", shed.reason),
            Err(reason) if speaks => log::warn!("shards stay where they are: {reason}"),
            _ => {}
        }
        match moved {
            Ok(()) => self.clock.forget(),
            Err(_) => self.scout.give_up_shedding(),
        }
        Ok((verdict.straggler, moved.is_ok()))
    }

    /// From now on among these shares.
    pub(super) fn keep_pace(&mut self, policy: Policy, shares: Vec<usize>) {
        self.scout = Scout::new(policy, shares);
        self.clock = crate::straggler::Clock::default();
    }
}
