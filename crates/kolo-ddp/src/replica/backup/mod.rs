//! Copies to which an elastic job goes back if a rank dies with state that only it has.
//!
//! Values and optimizer state are on every rank. The state that a reduction keeps for a shard, such as a
//! residual, is only on the rank that computes the shard. So are the weights and the optimizer of an island
//! that synchronizes rarely. Copying this state after every step would cost more than the compressed
//! gradient, or the rare outer step, saves. Instead each rank copies everything it holds every
//! [`Config::backup_every`](crate::Config::backup_every) steps, and sends its private state to the next two
//! workers (`keepers` in kolo-sync). With islands it does so at the end of a round, when their weights are
//! the same. After a death all ranks go back to the newest copy of which every shard survives somewhere
//! (`newest` there, [`restoring`]), and repeat the steps since then, in the same bits. This file makes the
//! copies.

mod restoring;

use std::collections::HashSet;

use kolo_comm::Rank;

use super::handle::Replica;
use kolo_reduction::Error;
use kolo_reduction::state::{Holdings, StateCopy, redistribute, transfer};
use kolo_sync::Notes;
use kolo_sync::backup::{Backup, Backups, kept};

impl Replica {
    /// Returns true if a copy is due after the steps so far.
    pub(super) fn is_backup_due(&self) -> bool {
        let core = &self.core;
        core.keeps_state()
            && self.is_synchronized()
            && core.backups.is_due(core.config.backup_every, core.progress.steps)
    }

    /// Copies this rank's state, and sends the state of its shards to the next workers. A collective. Does
    /// nothing if no state could be lost. The copy of a server is empty.
    pub(super) fn back_up(&mut self) -> Result<(), Error> {
        self.back_up_with(&self.core.workers())
    }

    /// Makes a copy, as [`Replica::back_up`] does: the state of shards goes to the next of `keepers`. Before
    /// ranks leave, maybe this one, these are the workers that stay.
    pub(super) fn back_up_with(&mut self, keepers: &[Rank]) -> Result<(), Error> {
        if !self.core.keeps_state() {
            return Ok(());
        }
        let mut job = self.own_state()?;
        let core = &mut self.core;
        if core.ranks.server {
            job.arrays = StateCopy::new(core.weights.layout.len());
        }
        let own = (job.arrays.holdings().filtered(|name| name.shard.is_some()), &job.notes.islands);
        let reported: Vec<(Holdings, Vec<Notes>)> = core.ranks.group.all_gather_value(&own)?;
        let (have, islands): (Vec<_>, Vec<_>) = reported.into_iter().unzip();
        // In the order of islands, which is that of the ranks that represent them.
        job.notes.islands = islands.concat();
        let transfers = redistribute(&have, &kept(&core.workers(), keepers, &have))?;
        transfer(&core.ranks.group, &transfers, &mut job.arrays)?;
        if let Some(before) = core.backups.at(core.progress.steps).filter(|_| core.moves_parts()) {
            // Another owner of a part may not have made this copy yet.
            job.arrays.extend(&before.job.arrays);
        }
        let has_none = have.iter().all(|have| have.0.is_empty());
        let held: HashSet<usize> =
            job.arrays.holdings().0.into_iter().filter_map(|(name, _)| name.shard).collect();
        let has_all = has_none && !core.ranks.server;
        let shards = (0..core.ranks.shards).filter(|shard| has_all || held.contains(shard)).collect();
        core.backups.add(Backup { steps: core.progress.steps, known: core.last_steps(), job, shards });
        Ok(())
    }

    /// Replaces the copies, which belong to another run than the one that continues from here, by a new one.
    pub(super) fn forget_backups(&mut self) -> Result<(), Error> {
        self.core.backups = Backups::default();
        self.back_up_at_start()
    }

    /// Makes a copy before the first step of a group, so that there is one from then on and the state of
    /// each shard has all its holders again.
    pub(super) fn back_up_at_start(&mut self) -> Result<(), Error> {
        if self.core.config.backup_every > 0 { self.back_up() } else { Ok(()) }
    }
}
