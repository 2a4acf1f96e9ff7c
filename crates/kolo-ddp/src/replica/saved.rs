//! Copies of a replica's state, gathering what other ranks hold, and resuming from a checkpoint.

use std::collections::HashSet;
use std::time::Duration;

use kolo_comm::Rank;
use kolo_reduction::Error;
use kolo_reduction::state::{Holdings, StateCopy, Transfer, Visit, redistribute, transfer};
use kolo_step::timed;
use kolo_sync::sync::SyncTraits;
use kolo_sync::{JobState, Notes};

use super::handle::Replica;

impl Replica {
    /// Visits all arrays that this rank keeps from step to step.
    pub(crate) fn visit_state(&mut self, visit: &mut Visit<'_>) {
        self.mode.visit_weights(&mut self.core, visit);
        self.core.step.visit_state(visit);
    }

    /// Copies the state that this rank holds; of the islands, that of those that it represents.
    pub(crate) fn own_state(&mut self) -> Result<JobState, Error> {
        let notes = self.mode.notes(&mut self.core)?;
        let shards = self.core.step.shards();
        let arrays = StateCopy::of(self.layout().len(), |visit| {
            self.visit_state(&mut |part| {
                if part.name.shard.is_none_or(|shard| shards.contains(&shard)) {
                    visit(part);
                }
            });
        });
        self.mode.check_stores(&mut self.core)?;
        Ok(JobState { notes, arrays })
    }

    /// Copies all of the job's state, which must be on this rank ([`Replica::gather_residuals`]).
    pub(crate) fn whole_state(&mut self) -> Result<JobState, Error> {
        self.core.expect_whole_step()?;
        let own = self.own_state()?;
        match &mut self.core.gathered {
            Some((steps, JobState { notes, arrays })) if *steps == self.core.progress.steps => {
                // Copies share what is gathered, which is as old as this rank's own state.
                if arrays.holdings().first_missing(&own.arrays.holdings()).is_some() {
                    arrays.extend(&own.arrays);
                }
                let arrays = arrays.in_order_of(&own.arrays);
                Ok(JobState { notes: notes.clone(), arrays })
            }
            _ => self.mode.expect_all(&self.core).map(|()| own),
        }
    }

    /// Brings to rank 0 all state that a checkpoint needs: what the reduction keeps for each shard, such as
    /// residuals, and the optimizers of islands or servers. All ranks must call it after the same step,
    /// before rank 0 takes the checkpoint. Does nothing if there is no such state.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or the optimizer's state is not finite (naming the parameter,
    /// on all ranks).
    pub fn gather_residuals(&mut self) -> Result<(), Error> {
        self.core.check_state()?;
        let SyncTraits { rounds, staleness_bound, .. } = self.traits();
        let is_divided = self.core.shards_with_state() > 0
            || self.core.is_divided()
            || rounds.is_some()
            || staleness_bound.is_some();
        if !is_divided || !self.is_synchronized() {
            return Ok(());
        }
        let group = self.group().clone();
        let mut notes = self.mode.notes(&mut self.core)?;
        let have = Holdings::of(|visit| self.visit_state(visit));
        let reported: Vec<(Holdings, Vec<Notes>, Option<u64>)> =
            group.all_gather_value(&(have, &notes.islands, notes.updates))?;
        notes.updates = reported.iter().find_map(|(.., updates)| *updates);
        let (have, islands): (Vec<_>, Vec<_>) =
            reported.into_iter().map(|(have, islands, _)| (have, islands)).unzip();
        // In the order of islands, which is that of the ranks that represent them.
        notes.islands = islands.concat();
        let mut want = vec![Holdings::default(); have.len()];
        want[0] = Holdings::union(&have);
        let transfers = redistribute(&have, &want)?;
        // Of an array that rank 0 receives it may have a part itself.
        let is_involved = |transfer: &&Transfer| transfer.from == group.rank() || group.rank() == Rank(0);
        let involved: HashSet<_> =
            transfers.iter().filter(is_involved).map(|transfer| &transfer.name).collect();
        let mut moved = StateCopy::of(self.layout().len(), |visit| {
            self.visit_state(&mut |part| {
                if involved.contains(&part.name) {
                    visit(part);
                }
            });
        });
        self.mode.check_stores(&mut self.core)?;
        let mut exposed = Duration::ZERO;
        timed(&mut exposed, "residuals", || transfer(&group, &transfers, &mut moved))?;
        let core = &mut self.core;
        core.step.add_exposed(exposed);
        let steps = core.progress.steps;
        core.gathered = (group.rank() == Rank(0)).then_some((steps, JobState { notes, arrays: moved }));
        Ok(())
    }

    /// Resets all state that a checkpoint restores: the replica is then like that of a process that has just
    /// joined these ranks. All ranks must call it after the same step.
    pub(crate) fn begin_anew(&mut self) -> Result<(), Error> {
        self.core.begin_anew()?;
        self.mode.form(&mut self.core, 0)?;
        self.resume(0)
    }

    /// Resumes all ranks from a checkpoint that was made after that number of steps. A collective.
    pub(crate) fn resume(&mut self, steps: u64) -> Result<(), Error> {
        self.core.set_steps(steps);
        self.forget_backups()
    }
}
