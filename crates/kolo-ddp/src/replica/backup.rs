//! Copies to which an elastic job goes back where a rank has something that dies with it.
//!
//! Values and optimizer state are on every rank. What a reduction keeps for a shard is only on the rank that
//! computes it, such as a residual; and so are the weights and the optimizer of an island that synchronises
//! rarely. Another holder after every step would cost more than the compressed gradient, or the rare outer
//! step, saves. So every [`Config::backup_every`](crate::Config::backup_every) steps, of islands at the end
//! of a round, when their weights are the same, each rank copies all it has, and gives a copy of what only it
//! has to the next [`HOLDERS`] that train. After a death all ranks go back to the newest copy of which every
//! shard is left somewhere, and do the steps since then again, in the same bits.

use std::collections::{BTreeMap, VecDeque};

use kolo_comm::{Group, Rank};
use serde::{Deserialize, Serialize};

use super::Replica;
use super::islands::IslandNotes;
use super::undo::Undo;
use crate::config::Config;
use crate::error::Error;
use crate::last_step::LastStep;
use crate::loss_scaling::LossScale;
use crate::noise_scale::NoiseScale;
use crate::warning::Warning;

/// Ranks that hold what only another one has: two, because the death of a rank is seldom noticed before that
/// of its neighbour where both have one cause, and a copy is there again only when the next group has begun.
const HOLDERS: usize = 2;

/// How many copies are kept: while a new one is made the one before it is the last that is good.
const KEPT: usize = 2;

/// All that a rank has after a step.
struct Backup {
    steps: u64,
    common: Common,
    /// What is the same on all ranks, each in the order of flat memory: the values, the optimizer's state,
    /// what the reduction keeps on all ranks, and while all shards synchronise every step before the first
    /// round the islands' optimizer.
    arrays: Vec<Vec<f32>>,
    /// By shard, where there are islands by island: this rank's, and those of the ranks before it. Where
    /// nothing is kept for any of them all are here, each without values.
    shards: BTreeMap<usize, Vec<f32>>,
}

/// What is the same on all ranks of a copy besides its arrays.
#[derive(Clone, Serialize, Deserialize)]
struct Common {
    /// What the steps have come to that became known with the last one.
    known: Vec<LastStep>,
    uses: Vec<u32>,
    /// What each of the islands goes on with, and how many of their steps have been skipped.
    islands: Vec<IslandNotes>,
    skipped_steps: u64,
    noise_scale: NoiseScale,
    loss_scale: LossScale,
    /// How many arrays there are, and how many values are kept for each shard.
    arrays: usize,
    shard_len: usize,
}

/// The newest copies, oldest first.
#[derive(Default)]
pub(super) struct Backups(VecDeque<Backup>);

impl Backups {
    fn at(&self, steps: u64) -> Option<&Backup> {
        self.0.iter().find(|backup| backup.steps == steps)
    }

    fn add(&mut self, backup: Backup) {
        self.0.retain(|other| other.steps != backup.steps);
        self.0.push_back(backup);
        while self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Whether a multiple of `every` steps has been done since the newest copy.
    fn is_due(&self, every: u64, steps: u64) -> bool {
        let copied = self.0.back().map_or(0, |backup| backup.steps);
        every > 0 && steps / every > copied / every
    }
}

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

/// Who gives what it has to whom: each of `workers` to another one that is a keeper, past so many of them in
/// the circle, if there is one.
fn pairs(workers: &[Rank], keepers: &[Rank], past: usize) -> Vec<(Rank, Rank)> {
    let pair = |(place, worker): (usize, &Rank)| {
        let others = workers[place + 1..].iter().chain(&workers[..place]);
        let keeper = others.filter(|other| keepers.contains(other)).nth(past)?;
        Some((*worker, *keeper))
    };
    workers.iter().enumerate().filter_map(pair).collect()
}

impl Replica {
    /// Whether a rank has something that could die with it.
    fn keeps_state(&self) -> bool {
        let Config { elastic, reduction, sync, .. } = &self.config;
        *elastic && (reduction.keeps_state() || sync.is_delayed() || self.islands.is_some())
    }

    /// Whether a copy is to be made after the steps so far.
    pub(super) fn is_backup_due(&self) -> bool {
        self.keeps_state()
            && self.is_synchronised()
            && self.backups.is_due(self.config.backup_every, self.steps)
    }

    /// Copies what this rank has, and gives what is kept for its shards to the next workers. A collective;
    /// does nothing where there is nothing that could be lost, and on a server, which has nothing.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(super) fn back_up(&mut self) -> Result<(), Error> {
        self.back_up_with(&self.workers())
    }

    /// The same before ranks leave, maybe this one: to the next workers that stay.
    ///
    /// # Errors
    ///
    /// As [`Replica::back_up`].
    pub(super) fn back_up_with_those_who_stay(&mut self) -> Result<(), Error> {
        if !self.keeps_state() {
            return Ok(());
        }
        let leaves = self.members.leaves(self.group.rank());
        let leave: Vec<bool> = self.group.all_gather_value(&leaves)?;
        let stay: Vec<Rank> = self.workers().into_iter().filter(|Rank(rank)| !leave[*rank]).collect();
        self.back_up_with(&stay)
    }

    fn back_up_with(&mut self, keepers: &[Rank]) -> Result<(), Error> {
        if !self.keeps_state() {
            return Ok(());
        }
        self.apply_outstanding()?;
        if self.server {
            return Ok(());
        }
        let mut own = self.step.shard_state();
        let mut arrays = vec![self.values.clone()];
        arrays.extend(self.optimizer.state().into_iter().map(|(_, state)| state.to_vec()));
        arrays.extend(self.step.common_state());
        let (mut notes, mut shard_len) = (Vec::new(), self.shard_state_len());
        own.resize(self.step.shards().len(), Vec::new());
        if let Some(islands) = &mut self.islands {
            let copied = islands.copy(&self.group)?;
            own.iter_mut().zip(copied.own).for_each(|(own, island)| own.extend(island));
            arrays.extend(copied.together);
            (notes, shard_len) = (copied.notes, shard_len + copied.len);
        }
        let common = Common {
            known: self.last_steps(),
            uses: self.step.expected_uses().to_vec(),
            islands: notes,
            skipped_steps: self.skipped_steps(),
            noise_scale: self.noise.known,
            loss_scale: self.scaler.now(),
            arrays: arrays.len(),
            shard_len,
        };
        let shards = match shard_len {
            0 => (0..self.shards).map(|shard| (shard, Vec::new())).collect(),
            _ => self.with_those_before(own, shard_len, keepers)?,
        };
        self.backups.add(Backup { steps: self.steps, common, arrays, shards });
        Ok(())
    }

    /// What is kept for this rank's shards, so many values each, and if it is one of `keepers` for those of
    /// the workers before it, each of which gives its own to the next keepers. A collective.
    fn with_those_before(
        &self,
        own: Vec<Vec<f32>>,
        shard_len: usize,
        keepers: &[Rank],
    ) -> Result<BTreeMap<usize, Vec<f32>>, Error> {
        let (workers, rank, group) = (self.workers(), self.group.rank(), &self.group);
        let shards_of = |Rank(worker): Rank| {
            let first: usize = self.step.shares()[..worker].iter().sum();
            first..first + self.step.shares()[worker]
        };
        let mut shards: BTreeMap<usize, Vec<f32>> = self.step.shards().zip(own.iter().cloned()).collect();
        let mut keep = |worker: Rank, received: &[f32]| {
            shards.extend(shards_of(worker).zip(received.chunks(shard_len).map(<[f32]>::to_vec)));
        };
        let space = |worker: Rank| vec![0.0; shards_of(worker).len() * shard_len];
        let own = own.concat();
        for past in 0..HOLDERS {
            let pairs = pairs(&workers, keepers, past);
            let to = pairs.iter().find(|(from, _)| *from == rank).map(|(_, to)| *to);
            let from = pairs.iter().find(|(_, to)| *to == rank).map(|(from, _)| *from);
            if keepers == workers
                && let (Some(to), Some(from)) = (to, from)
            {
                // All at once.
                let mut received = space(from);
                group.send_receive(&own, to, &mut received, from)?;
                keep(from, &received);
                continue;
            }
            // One after another, in an order that is the same on all ranks.
            for (from, to) in pairs {
                if from == rank {
                    group.send(&own, to)?;
                } else if to == rank {
                    let mut received = space(from);
                    group.receive(&mut received, from)?;
                    keep(from, &received);
                }
            }
        }
        Ok(shards)
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

    /// A copy before the first step of a group, so that there is one from then on, and what is kept for each
    /// shard has all its holders again.
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

    /// Before the first step of a group: all ranks go back to the newest copy that is whole. Returns what is
    /// to be put back when they have shards again ([`Replica::put_back`]); nothing where no rank has trained,
    /// or nothing is kept.
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
        let own = self.backups.at(steps);

        let told: Option<Common> = group.broadcast_value(own.map(|own| own.common.clone()), donor)?;
        let Some(common) = told else { return Ok(None) };
        let receive = |number: usize| {
            let mut array =
                own.map_or_else(|| vec![0.0; self.layout.len()], |own| own.arrays[number].clone());
            group.broadcast(&mut array, donor)?;
            Ok::<_, Error>(array)
        };
        let arrays = (0..common.arrays).map(receive).collect::<Result<Vec<_>, _>>()?;
        // Nothing of this rank's own has been given up before all of it was here.
        if self.joined && self.steps != steps {
            log::info!("going back from step {} to step {steps}, of which all is left", self.steps);
        }
        let mut arrays = arrays.into_iter();
        self.values = arrays.next().unwrap_or_default();
        for ((_, state), new) in self.optimizer.state().into_iter().zip(&mut arrays) {
            state.copy_from_slice(&new);
        }
        self.set_last_steps(common.known.clone());
        self.steps = steps;
        self.noise.known = common.noise_scale;
        self.scaler.take_over(common.loss_scale);
        self.undo = self.undo.is_some().then(|| Undo::new(&self.layout));
        self.gathered = None;
        if let Some(islands) = &mut self.islands {
            islands.begins_at(steps);
        }
        Ok(Some(Restored { steps, holders, common, rest: arrays.collect() }))
    }

    /// Each rank gets what was kept for the shards that it has now, from whoever has it. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(super) fn put_back(&mut self, restored: &Restored) -> Result<(), Error> {
        let count = self.config.reduction.common_state().len().min(restored.rest.len());
        let (common, together) = restored.rest.split_at(count);
        self.step.set_common_state(common);
        if let Some(islands) = &mut self.islands {
            islands.put_back(&restored.common.islands, together, restored.common.skipped_steps);
        }
        let of_reduction = self.shard_state_len();
        let mut own = Vec::new();
        for (shard, holder) in restored.holders.iter().enumerate() {
            let Some(kept) = self.hand_over(restored, shard, *holder)? else { continue };
            let (reduction, island) = kept.split_at(of_reduction);
            if self.step.shards().contains(&shard) {
                own.push(reduction.to_vec());
            }
            if let Some(islands) = &mut self.islands {
                islands.put_back_state(shard, island);
            }
        }
        if of_reduction > 0 {
            self.step.set_shard_state(&own);
        }
        Ok(())
    }

    /// What was kept for a shard goes from its holder to the ranks that have it now; returns it on those.
    fn hand_over(&self, restored: &Restored, shard: usize, holder: Rank) -> Result<Option<Vec<f32>>, Error> {
        let len = restored.common.shard_len;
        let (rank, takers) = (self.group.rank(), self.ranks_of_shard(shard));
        if len == 0 {
            return Ok(None);
        }
        let is_taker = takers.contains(&rank);
        if rank == holder {
            let own = self.backups.at(restored.steps).and_then(|backup| backup.shards.get(&shard));
            let own = own.ok_or(Error::Lost)?;
            let mut others = takers.iter().filter(|taker| **taker != rank);
            others.try_for_each(|taker| self.group.send(own, *taker))?;
            return Ok(is_taker.then(|| own.clone()));
        }
        if !is_taker {
            return Ok(None);
        }
        let mut received = vec![0.0; len];
        self.group.receive(&mut received, holder)?;
        Ok(Some(received))
    }

    /// The ranks that need what is kept for a shard, or for an island.
    fn ranks_of_shard(&self, shard: usize) -> Vec<Rank> {
        if let Some(islands) = &self.islands {
            return islands.ranks_of(shard);
        }
        let shares = self.step.shares().iter();
        let ends = shares.scan(0, |end, share| {
            *end += share;
            Some(*end)
        });
        ends.enumerate().find(|(_, end)| shard < *end).map(|(rank, _)| Rank(rank)).into_iter().collect()
    }

    /// What only dead workers had is nowhere: it begins with nothing, and the user hears of it.
    pub(super) fn warn_of_lost_state(&mut self) {
        let reducer = self.config.reduction.clone();
        if self.islands.is_some() {
            self.warn(Warning::IslandStateLost { islands: (0..self.shards).collect() });
        }
        if reducer.keeps_state() {
            let reduction = reducer.name().to_string();
            self.warn(Warning::ShardStateLost { reduction, shards: (0..self.shards).collect() });
        }
    }

    /// Whether a new group begins without what its ranks had kept.
    pub(super) fn has_lost_state(&self, restored: Option<&Restored>) -> bool {
        self.keeps_state() && restored.is_none() && self.steps > 0
    }
}

/// A copy to which all ranks have gone back, and what of it they get when they have shards again.
pub(super) struct Restored {
    steps: u64,
    /// For each shard who holds what is kept for it.
    holders: Vec<Rank>,
    common: Common,
    /// Of its arrays those that a step, or an island, holds.
    rest: Vec<Vec<f32>>,
}

impl Restored {
    /// How often the next step is expected to use each tensor.
    pub(super) fn uses(&self) -> &[u32] {
        &self.common.uses
    }
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

    #[test]
    fn each_worker_has_a_keeper_that_stays() {
        let ranks = |ranks: &[usize]| ranks.iter().copied().map(Rank).collect::<Vec<_>>();
        let found = |workers: &[usize], keepers: &[usize], past| -> Vec<(usize, usize)> {
            let pairs = pairs(&ranks(workers), &ranks(keepers), past).into_iter();
            pairs.map(|(from, to)| (from.0, to.0)).collect()
        };
        assert_eq!(found(&[0, 1, 3], &[0, 1, 3], 0), [(0, 1), (1, 3), (3, 0)]);
        assert_eq!(found(&[0, 1, 3], &[0, 1, 3], 1), [(0, 3), (1, 0), (3, 1)]);
        assert_eq!(found(&[0, 1, 2, 3], &[0, 3], 0), [(0, 3), (1, 3), (2, 3), (3, 0)]);
        assert_eq!(found(&[0, 1, 2, 3], &[0, 3], 1), [(1, 0), (2, 0)]);
        assert_eq!(found(&[0, 1, 2], &[1], 0), [(0, 1), (2, 1)]);
        assert_eq!(found(&[0], &[0], 0), []);
        assert_eq!(found(&[0, 1], &[0, 1], 1), []);
        assert_eq!(found(&[0, 1], &[], 0), []);
    }

    #[test]
    fn a_copy_is_due_after_a_multiple_of_steps_however_many_a_round_has() {
        let mut backups = Backups::default();
        let mut copied = Vec::new();
        for steps in [0, 3, 6, 9, 12, 13, 16, 19, 20, 21] {
            if backups.is_due(5, steps) {
                let loss_scale = LossScale { scale: 1.0, clean_steps: 0, skipped_steps: 0 };
                let noise_scale = NoiseScale::default();
                let (known, uses, islands, skipped_steps) = (Vec::new(), Vec::new(), Vec::new(), 0);
                let (arrays, shard_len) = (0, 0);
                let common = Common {
                    known,
                    uses,
                    islands,
                    skipped_steps,
                    noise_scale,
                    loss_scale,
                    arrays,
                    shard_len,
                };
                backups.add(Backup { steps, common, arrays: Vec::new(), shards: BTreeMap::new() });
                copied.push(steps);
            }
        }
        assert_eq!(copied, [6, 12, 16, 20]);
        assert!(!backups.is_due(0, 100));
    }
}
