//! Restoring a copy on all ranks: first the part that is the same on all of them, and when they have shards
//! again, the state of each rank's own shards.

use kolo_comm::{Group, Rank};

use crate::replica::handle::Replica;
use kolo_reduction::Error;
use kolo_reduction::state::{Holdings, StateCopy, redistribute, transfer};
use kolo_step::LastStep;
use kolo_sync::backup::{Held, newest};
use kolo_sync::{JobNotes, JobState, Undo, Warning};

/// A copy to which all ranks have gone back; the state of shards is still to be restored.
pub(crate) struct Restored {
    /// Arrays of the copy that each rank has, or had.
    have: Vec<Holdings>,
    job: JobState,
}

impl Restored {
    /// Number of times that the next step is expected to use each tensor.
    pub(crate) fn uses(&self) -> &[u32] {
        &self.job.notes.core.uses
    }
}

impl Replica {
    /// Takes all ranks back to the newest complete copy, before the first step of a group. Returns what
    /// [`Replica::put_back`] restores when they have shards again. `None` if no rank has trained, or if no
    /// state is kept.
    pub(crate) fn go_back(&mut self, group: &Group) -> Result<Option<Restored>, Error> {
        let core = &mut self.core;
        if !core.keeps_state() {
            return Ok(None);
        }
        let held: Vec<Vec<Held>> = group.all_gather_value(&core.backups.held())?;
        let Some(steps) = newest(&held, core.ranks.shards, core.weights.layout.len()) else {
            return Ok(None);
        };
        let at =
            |rank: &Vec<Held>| rank.iter().find(|held| held.steps == steps).map(|held| held.arrays.clone());
        let have: Vec<Holdings> = held.iter().map(|rank| at(rank).unwrap_or_default()).collect();
        // A server's copy is empty.
        let Some(donor) = have.iter().position(|have| !have.0.is_empty()) else { return Ok(None) };
        let own = core.backups.at(steps);
        let told: Option<(JobNotes, Vec<LastStep>)> =
            group.broadcast_value(own.map(|own| (own.job.notes.clone(), own.known.clone())), Rank(donor))?;
        let Some((notes, known)) = told else { return Ok(None) };
        let own = own.map(|own| own.job.arrays.clone());
        let mut arrays = own.unwrap_or_else(|| StateCopy::new(core.weights.layout.len()));
        let of_job = Holdings::union(&have).filtered(|name| name.shard.is_none());
        transfer(group, &redistribute(&have, &core.needed(&of_job, have.len()))?, &mut arrays)?;
        // This rank keeps its own state until the whole copy has arrived.
        if core.progress.joined && core.progress.steps != steps {
            log::info!("going back from step {} to step {steps}, of which all is left", core.progress.steps);
        }
        let job = JobState { notes, arrays };
        job.arrays.fill(|visit| self.mode.visit_weights(core, visit));
        core.set_last_steps(known);
        core.progress.steps = steps;
        core.weights.undo = core.weights.undo.is_some().then(|| Undo::new(&core.weights.layout));
        core.gathered = None;
        core.set_notes(job.notes.core.clone())?;
        self.mode.go_on_at(steps);
        Ok(Some(Restored { have, job }))
    }

    /// Restores the state of each rank's present shards, which their holders send. A collective.
    pub(crate) fn put_back(&mut self, restored: Restored) -> Result<(), Error> {
        let Restored { have, job: JobState { notes, mut arrays } } = restored;
        let of_shards = Holdings::union(&have).filtered(|name| name.shard.is_some());
        let takes = |rank: usize, shard: usize| self.mode.holders(&self.core, shard).contains(&Rank(rank));
        let of_rank = |rank| of_shards.filtered(|name| name.shard.is_some_and(|shard| takes(rank, shard)));
        let want: Vec<Holdings> = (0..have.len()).map(of_rank).collect();
        transfer(self.group(), &redistribute(&have, &want)?, &mut arrays)?;
        self.mode.make_room(&self.core, &notes);
        arrays.fill(|visit| self.visit_state(visit));
        self.mode.set_notes(&mut self.core, notes)
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
