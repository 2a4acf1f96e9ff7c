//! All ranks go back to a copy: first to what is the same on all of them, and when they have shards again,
//! each to what was kept for its own.

use kolo_comm::{Group, Rank};

use super::copies::Common;
use super::newest::{Held, newest};
use crate::error::Error;
use crate::replica::Replica;
use crate::replica::undo::Undo;
use crate::warning::Warning;

/// A copy to which all ranks have gone back, and what of it they get when they have shards again.
pub(in crate::replica) struct Restored {
    steps: u64,
    /// For each shard who holds what is kept for it.
    holders: Vec<Rank>,
    common: Common,
    /// Of its arrays those that a step, or an island, holds.
    rest: Vec<Vec<f32>>,
}

impl Restored {
    /// How often the next step is expected to use each tensor.
    pub(in crate::replica) fn uses(&self) -> &[u32] {
        &self.common.uses
    }
}

impl Replica {
    /// Before the first step of a group: all ranks go back to the newest copy that is whole. Returns what is
    /// to be put back when they have shards again ([`Replica::put_back`]); nothing where no rank has trained,
    /// or nothing is kept.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(in crate::replica) fn go_back(&mut self, group: &Group) -> Result<Option<Restored>, Error> {
        if !self.keeps_state() {
            return Ok(None);
        }
        let held: Vec<Vec<Held>> = group.all_gather_value(&self.backups.held())?;
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
        self.transforms.take_over(&self.layout, common.transforms.clone())?;
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
    pub(in crate::replica) fn put_back(&mut self, restored: &Restored) -> Result<(), Error> {
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
    pub(in crate::replica) fn warn_of_lost_state(&mut self) {
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
    pub(in crate::replica) fn has_lost_state(&self, restored: Option<&Restored>) -> bool {
        self.keeps_state() && restored.is_none() && self.steps > 0
    }
}
