//! Copies of a replica's state, gathering what other ranks hold, and resuming from a checkpoint.

use std::collections::HashSet;
use std::time::Duration;

use kolo_comm::Rank;
use kolo_reduction::Error;
use kolo_reduction::state::{Holdings, StateCopy, Transfer, Visit, redistribute};
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
        let own = Holdings::of(|visit| self.visit_state(visit));
        if let Some((_, JobState { notes, arrays })) =
            self.core.gathered.as_ref().filter(|(steps, _)| *steps == self.core.progress.steps)
            && arrays.holdings().first_missing(&own).is_none()
        {
            // Without another copy of this rank's own state.
            return Ok(JobState { notes: notes.clone(), arrays: arrays.in_order_of(&names_of(&own)) });
        }
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
        let mut exposed = Duration::ZERO;
        if group.rank() != Rank(0) {
            for run in transfers.iter().filter(|transfer| transfer.from == group.rank()) {
                let values = self.copy_of_run(run);
                self.mode.check_stores(&mut self.core)?;
                timed(&mut exposed, "residuals", || group.send(&values, Rank(0)))?;
            }
            self.core.step.add_exposed(exposed);
            self.core.gathered = None;
            return Ok(());
        }
        // Of an array that rank 0 receives it may have a part itself.
        let involved: HashSet<_> = transfers.iter().map(|transfer| &transfer.name).collect();
        let mut moved = StateCopy::of(self.layout().len(), |visit| {
            self.visit_state(&mut |part| {
                if involved.contains(&part.name) {
                    visit(part);
                }
            });
        });
        self.mode.check_stores(&mut self.core)?;
        timed(&mut exposed, "residuals", || {
            let receive = |Transfer { name, place, from, .. }: &Transfer| {
                group.receive(moved.run_mut(name, place.clone()), *from)
            };
            transfers.iter().try_for_each(receive)
        })?;
        self.core.step.add_exposed(exposed);
        self.core.gathered = Some((self.core.progress.steps, JobState { notes, arrays: moved }));
        Ok(())
    }

    /// Copies the run of an array that this rank sends. A copy of all that it sends would double its state.
    fn copy_of_run(&mut self, Transfer { name, place, .. }: &Transfer) -> Vec<f32> {
        let mut values = vec![0.0; place.len()];
        self.visit_state(&mut |part| {
            let run = part.place.start.max(place.start)..part.place.end.min(place.end);
            if part.name == *name && run.start < run.end {
                let from = run.start - part.place.start..run.end - part.place.start;
                values[run.start - place.start..run.end - place.start].copy_from_slice(&part.values[from]);
            }
        });
        values
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

/// Returns empty arrays with the names of these runs, in their order.
fn names_of(runs: &Holdings) -> StateCopy {
    let mut names = StateCopy::new(0);
    for (name, _) in &runs.0 {
        names.run_mut(name, 0..0);
    }
    names
}
