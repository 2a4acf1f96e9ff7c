//! Restoring a copy on all ranks: first the part that is the same on all of them, and when they have shards
//! again, the state of each rank's own shards.

use kolo_comm::{Group, Rank};

use crate::replica::handle::Replica;
use kolo_reduction::Error;
use kolo_sync::backup::Common;
use kolo_sync::backup::{Held, newest};
use kolo_sync::{Core, Undo, Warning};

/// A copy to which all ranks have gone back; the state of shards is still to be restored.
pub(crate) struct Restored {
    steps: u64,
    /// For each shard, the rank that holds its state.
    holders: Vec<Rank>,
    common: Common,
    /// Arrays that belong to the step or the mode, not to the core.
    rest: Vec<Vec<f32>>,
}

impl Restored {
    /// Number of times that the next step is expected to use each tensor.
    pub(crate) fn uses(&self) -> &[u32] {
        &self.common.uses
    }
}

impl Replica {
    /// Takes all ranks back to the newest complete copy, before the first step of a group. Returns what
    /// [`Replica::put_back`] restores when they have shards again. `None` if no rank has trained, or if no
    /// state is kept.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(crate) fn go_back(&mut self, group: &Group) -> Result<Option<Restored>, Error> {
        let core = &mut self.core;
        if !core.keeps_state() {
            return Ok(None);
        }
        let held: Vec<Vec<Held>> = group.all_gather_value(&core.backups.held())?;
        let Some((steps, holders)) = newest(&held, core.ranks.shards) else { return Ok(None) };
        let has = |rank: &Vec<Held>| rank.iter().any(|held| held.steps == steps);
        let Some(donor) = held.iter().position(has).map(Rank) else { return Ok(None) };
        let own = core.backups.at(steps);

        let told: Option<Common> = group.broadcast_value(own.map(|own| own.common.clone()), donor)?;
        let Some(common) = told else { return Ok(None) };
        let receive = |number: usize| {
            let mut array =
                own.map_or_else(|| vec![0.0; core.weights.layout.len()], |own| own.arrays[number].clone());
            group.broadcast(&mut array, donor)?;
            Ok::<_, Error>(array)
        };
        let arrays = (0..common.arrays).map(receive).collect::<Result<Vec<_>, _>>()?;
        // This rank keeps its own state until the whole copy has arrived.
        if core.progress.joined && core.progress.steps != steps {
            log::info!("going back from step {} to step {steps}, of which all is left", core.progress.steps);
        }
        let mut arrays = arrays.into_iter();
        core.weights.values = arrays.next().unwrap_or_default();
        for ((_, state), new) in core.weights.optimizer.state().into_iter().zip(&mut arrays) {
            state.copy_from_slice(&new);
        }
        core.set_last_steps(common.known.clone());
        core.progress.steps = steps;
        core.observers.noise.known = common.noise_scale;
        core.scaler.take_over(common.loss_scale);
        core.transforms.take_over(&core.weights.layout, common.transforms.clone())?;
        core.weights.undo = core.weights.undo.is_some().then(|| Undo::new(&core.weights.layout));
        core.gathered = None;
        self.mode.go_on_at(steps);
        Ok(Some(Restored { steps, holders, common, rest: arrays.collect() }))
    }

    /// Restores the state of each rank's present shards, which their holders send. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(crate) fn put_back(&mut self, restored: &Restored) -> Result<(), Error> {
        let count = self.core.config.reduction.common_state().len().min(restored.rest.len());
        let (of_reduction, of_mode) = restored.rest.split_at(count);
        self.core.step.set_common_state(of_reduction);
        self.mode.put_back(&restored.common.shards, of_mode, restored.common.skipped_steps);
        let of_reduction = self.core.shard_state_len();
        let mut own = Vec::new();
        for (shard, holder) in restored.holders.iter().enumerate() {
            let takers = self.mode.holders(&self.core, shard);
            let Some(kept) = hand_over(&self.core, restored, shard, *holder, &takers)? else { continue };
            let (reduction, of_mode) = kept.split_at(of_reduction);
            if self.core.step.shards().contains(&shard) {
                own.push(reduction.to_vec());
            }
            self.mode.put_back_shard(shard, of_mode);
        }
        if of_reduction > 0 {
            self.core.step.set_shard_state(&own);
        }
        Ok(())
    }

    /// Warns the user that state which only dead workers held is lost, so it begins anew.
    pub(crate) fn warn_of_lost_state(&mut self) {
        let core = &mut self.core;
        if let Some(warning) = self.mode.loss(core.ranks.shards) {
            core.warn(warning);
        }
        if core.config.reduction.keeps_state() {
            let reduction = core.config.reduction.name().to_string();
            core.warn(Warning::ShardStateLost { reduction, shards: (0..core.ranks.shards).collect() });
        }
    }

    /// Returns true if a new group begins without the state that its ranks had kept.
    pub(crate) fn has_lost_state(&self, restored: Option<&Restored>) -> bool {
        self.core.keeps_state() && restored.is_none() && self.core.progress.steps > 0
    }
}

/// Sends the state of a shard from its holder to the ranks that compute it now; returns the state on
/// those.
fn hand_over(
    core: &Core,
    restored: &Restored,
    shard: usize,
    holder: Rank,
    takers: &[Rank],
) -> Result<Option<Vec<f32>>, Error> {
    let (rank, len) = (core.ranks.group.rank(), restored.common.shard_len);
    if len == 0 {
        return Ok(None);
    }
    let is_taker = takers.contains(&rank);
    if rank == holder {
        let own = core.backups.at(restored.steps).and_then(|backup| backup.shards.get(&shard));
        let own = own.ok_or(Error::Lost)?;
        let mut others = takers.iter().filter(|taker| **taker != rank);
        others.try_for_each(|taker| core.ranks.group.send(own, *taker))?;
        return Ok(is_taker.then(|| own.clone()));
    }
    if !is_taker {
        return Ok(None);
    }
    let mut received = vec![0.0; len];
    core.ranks.group.receive(&mut received, holder)?;
    Ok(Some(received))
}
