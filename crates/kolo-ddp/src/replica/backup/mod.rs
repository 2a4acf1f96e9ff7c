//! Copies to which an elastic job goes back where a rank has something that dies with it.
//!
//! Values and optimizer state are on every rank. What a reduction keeps for a shard is only on the rank that
//! computes it, such as a residual; and so are the weights and the optimizer of an island that synchronises
//! rarely. Another holder after every step would cost more than the compressed gradient, or the rare outer
//! step, saves. So every [`Config::backup_every`](crate::Config::backup_every) steps, of islands at the end
//! of a round, when their weights are the same, each rank copies all it has, and gives a copy of what only it
//! has to the next two that train ([`keepers`]). After a death all ranks go back to the newest copy of which
//! every shard is left somewhere ([`newest`], [`restoring`]), and do the steps since then again, in the same
//! bits. Here a copy is made.

mod copies;
mod keepers;
mod newest;
mod restoring;

use kolo_comm::Rank;

pub(super) use self::copies::Backups;
use self::copies::{Backup, Common};
use super::Replica;
use crate::config::Config;
use crate::error::Error;

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
            transforms: self.transforms.states(),
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
}
