//! Copies to which an elastic job goes back whose reduction keeps something for each shard.
//!
//! Values and optimizer state are on every rank, but a residual is only on the rank that computes its shard,
//! and dies with it. A second holder after every step would cost as much as the compressed gradient saves. So
//! every [`Config::backup_every`](crate::Config::backup_every) steps each rank copies all it has, and gives a
//! copy of its shards' state to the next one that trains. After a death all ranks go back to the newest copy
//! of which every shard is left somewhere, and do the steps since then again, in the same bits.

use std::collections::{BTreeMap, VecDeque};

use kolo_comm::{Group, Rank};
use serde::{Deserialize, Serialize};

use super::Replica;
use super::undo::Undo;
use crate::error::Error;
use crate::last_step::LastStep;
use crate::loss_scaling::LossScale;
use crate::warning::Warning;

/// How many copies are kept: while a new one is made the one before it is the last that is good.
const KEPT: usize = 2;

/// All that a rank has after a step.
struct Backup {
    steps: u64,
    last: Option<LastStep>,
    loss_scale: LossScale,
    values: Vec<f32>,
    optimizer: Vec<Vec<f32>>,
    common: Vec<Vec<f32>>,
    uses: Vec<u32>,
    /// By shard: this rank's, and those of the rank before it.
    shards: BTreeMap<usize, Vec<f32>>,
}

/// The newest copies, oldest first.
#[derive(Default)]
pub(super) struct Backups(VecDeque<Backup>);

/// What a rank tells of a copy: its step, and the shards that it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Held {
    steps: u64,
    shards: Vec<usize>,
}

/// The newest step after which every one of `shards` shards is held by somebody; for each of them who.
fn newest(held: &[Vec<Held>], shards: usize) -> Option<(u64, Vec<Rank>)> {
    let mut steps: Vec<u64> = held.iter().flatten().map(|held| held.steps).collect();
    steps.sort_unstable();
    steps.dedup();
    steps.into_iter().rev().find_map(|steps| {
        let holds = |rank: &&[Held], shard| {
            rank.iter().any(|held| held.steps == steps && held.shards.contains(&shard))
        };
        let holder = |shard| held.iter().position(|rank| holds(&&rank[..], shard)).map(Rank);
        (0..shards).map(holder).collect::<Option<Vec<Rank>>>().map(|holders| (steps, holders))
    })
}

impl Replica {
    /// Whether the reduction keeps something with which a rank could die.
    fn keeps_state(&self) -> bool {
        let reducer = &self.config.reduction;
        self.config.elastic && !(reducer.shard_state().is_empty() && reducer.common_state().is_empty())
    }

    /// Whether a copy is to be made after the steps so far.
    pub(super) fn is_backup_due(&self) -> bool {
        let every = self.config.backup_every;
        self.keeps_state() && every > 0 && self.steps.is_multiple_of(every)
    }

    /// Copies what this rank has, and gives its shards' state to the next worker. A collective; does nothing
    /// where there is nothing that could be lost, and on a server, which has nothing.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(super) fn back_up(&mut self) -> Result<(), Error> {
        if !self.keeps_state() {
            return Ok(());
        }
        self.apply_outstanding()?;
        if self.server {
            return Ok(());
        }
        let (group, workers) = (self.group.clone(), self.workers());
        let (world, rank) = (workers.len(), group.rank());
        let own = self.step.shard_state();
        let mut shards: BTreeMap<usize, Vec<f32>> = self.step.shards().zip(own.iter().cloned()).collect();
        if world > 1 {
            let place = workers.iter().position(|worker| *worker == rank).unwrap_or(0);
            let (Rank(next), Rank(before)) =
                (workers[(place + 1) % world], workers[(place + world - 1) % world]);
            let first: usize = self.step.shares()[..before].iter().sum();
            let theirs = first..first + self.step.shares()[before];
            let len = self.shard_state_len();
            let mut received = vec![0.0; theirs.len() * len];
            group.send_receive(&own.concat(), Rank(next), &mut received, Rank(before))?;
            shards.extend(theirs.zip(received.chunks(len.max(1)).map(<[f32]>::to_vec)));
        }
        let backup = Backup {
            steps: self.steps,
            last: self.last,
            loss_scale: self.scaler.now(),
            values: self.values.clone(),
            optimizer: self.optimizer.state().into_iter().map(|(_, state)| state.to_vec()).collect(),
            common: self.step.common_state(),
            uses: self.step.expected_uses().to_vec(),
            shards,
        };
        self.backups.0.retain(|other| other.steps != backup.steps);
        self.backups.0.push_back(backup);
        while self.backups.0.len() > KEPT {
            self.backups.0.pop_front();
        }
        Ok(())
    }

    /// The copies are of another run than the one that goes on from here: makes one of this.
    ///
    /// # Errors
    ///
    /// As [`Replica::back_up`].
    pub(super) fn forget_backups(&mut self) -> Result<(), Error> {
        self.backups = Backups::default();
        self.back_up_at_start()
    }

    /// A copy before the first step of a group, so that there is one from then on, and each shard's state has
    /// two holders again.
    ///
    /// # Errors
    ///
    /// As [`Replica::back_up`].
    pub(super) fn back_up_at_start(&mut self) -> Result<(), Error> {
        if self.config.backup_every > 0 { self.back_up() } else { Ok(()) }
    }

    /// Values that the reduction keeps for one shard.
    fn shard_state_len(&self) -> usize {
        self.config.reduction.shard_state().len() * self.layout.len()
    }

    /// Before the first step of a group: all ranks go back to the newest copy that is whole. Returns the
    /// state of all shards as it was then; nothing where no rank has trained, or nothing is kept.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(super) fn go_back(&mut self, group: &Group) -> Result<Option<Restored>, Error> {
        if !self.keeps_state() {
            return Ok(None);
        }
        let own = self
            .backups
            .0
            .iter()
            .map(|backup| Held { steps: backup.steps, shards: backup.shards.keys().copied().collect() });
        let held: Vec<Vec<Held>> = group.all_gather_value(&own.collect::<Vec<_>>())?;
        let Some((steps, holders)) = newest(&held, self.shards) else { return Ok(None) };
        let has = |rank: &Vec<Held>| rank.iter().any(|held| held.steps == steps);
        let Some(donor) = held.iter().position(has).map(Rank) else { return Ok(None) };
        let own = self.backups.0.iter().find(|backup| backup.steps == steps);

        let zeros = |len| vec![0.0f32; len];
        let len = self.layout.len();
        let mut values = own.map_or_else(|| zeros(len), |own| own.values.clone());
        group.broadcast(&mut values, donor)?;
        let count = self.optimizer.state().len();
        let mut optimizer = own.map_or_else(|| vec![zeros(len); count], |own| own.optimizer.clone());
        optimizer.iter_mut().try_for_each(|state| group.broadcast(state, donor))?;
        let count = self.config.reduction.common_state().len();
        let mut common = own.map_or_else(|| vec![zeros(len); count], |own| own.common.clone());
        common.iter_mut().try_for_each(|state| group.broadcast(state, donor))?;
        let told = own.map(|own| (own.last, own.loss_scale, own.uses.clone()));
        let told: Option<(Option<LastStep>, LossScale, Vec<u32>)> = group.broadcast_value(told, donor)?;
        let Some((last, loss_scale, uses)) = told else { return Ok(None) };
        let mut shards = Vec::new();
        for (shard, holder) in holders.into_iter().enumerate() {
            let held = own.and_then(|own| own.shards.get(&shard)).cloned();
            let mut state = held.unwrap_or_else(|| zeros(self.shard_state_len()));
            group.broadcast(&mut state, holder)?;
            shards.push(state);
        }
        // Nothing of this rank's own has been given up before all of it was here.
        if self.joined && self.steps != steps {
            log::info!("going back from step {} to step {steps}, of which all is left", self.steps);
        }
        for ((_, state), new) in self.optimizer.state().into_iter().zip(optimizer) {
            state.copy_from_slice(&new);
        }
        (self.values, self.steps, self.last) = (values, steps, last);
        self.scaler.take_over(loss_scale);
        self.undo = self.undo.is_some().then(|| Undo::new(&self.layout));
        self.gathered = None;
        Ok(Some(Restored { common, shards, uses }))
    }

    /// The state of some shards is nowhere: they begin with nothing, and the user hears of it.
    pub(super) fn warn_of_lost_state(&mut self) {
        let reduction = self.config.reduction.name().to_string();
        self.warn(Warning::ShardStateLost { reduction, shards: (0..self.shards).collect() });
    }

    /// Whether a new group begins without what its ranks' reductions had kept.
    pub(super) fn has_lost_state(&self, restored: Option<&Restored>) -> bool {
        self.keeps_state() && restored.is_none() && self.steps > 0
    }
}

/// What the reduction had kept when a copy was made.
pub(super) struct Restored {
    pub(super) common: Vec<Vec<f32>>,
    /// Of all shards of the job.
    pub(super) shards: Vec<Vec<f32>>,
    pub(super) uses: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_copy_counts_of_which_every_shard_is_left() {
        let held = |steps, shards: &[usize]| Held { steps, shards: shards.to_vec() };
        let ranks =
            [vec![held(10, &[0, 1, 3]), held(20, &[0, 1])], vec![held(10, &[2, 1]), held(20, &[2, 1])]];
        assert_eq!(newest(&ranks, 3), Some((20, vec![Rank(0), Rank(0), Rank(1)])));
        assert_eq!(newest(&ranks, 4), Some((10, vec![Rank(0), Rank(0), Rank(1), Rank(0)])));
        assert_eq!(newest(&ranks, 5), None);
        assert_eq!(newest(&[Vec::new(), Vec::new()], 1), None);
    }
}
