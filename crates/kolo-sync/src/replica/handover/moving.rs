//! Transfers of divided state to its new owners.

use std::sync::Arc;
use std::time::Duration;

use kolo_comm::{Group, Rank};
use kolo_optim::state_names;
use kolo_reduction::Error;
use kolo_reduction::state::{Holdings, StateCopy, StateKind, StateName, transfer};
use kolo_step::{LastStep, timed};
use kolo_values::handover::{Decision, Missing, PartReport, Role, decide};

use super::progress::{Ending, Handover, Stage};
use crate::replica::core::Core;
use crate::replica::notes::Notes;
use crate::replica::state_share::StateShare;

impl Core {
    /// Returns true if ranks with parts of the state may come and go.
    pub fn moves_parts(&self) -> bool {
        self.weights.share.is_some() && self.config.elastic
    }

    /// Waits until all ranks have the sums of their parts, before any of them changes a part. A collective.
    pub(crate) fn agree_on_sums(&mut self, mut ending: Ending) -> Result<(), Error> {
        self.handover.ending = Some(ending);
        if !ending.done.skipped {
            self.step.order().into_iter().try_for_each(|bucket| self.step.wait(bucket))?;
        }
        ending.stage = Stage::Ready;
        self.handover.ending = Some(ending);
        let (group, mut exposed) = (&self.ranks.group, Duration::ZERO);
        timed(&mut exposed, "the sums of the others' parts", || group.barrier())?;
        self.step.add_exposed(exposed);
        if std::mem::take(&mut self.handover.fails_when_ready) {
            return Err(Error::Lost);
        }
        ending.stage = Stage::Stepped;
        // Nothing before the end of the step can fail on this rank alone, except for a lack of memory.
        (self.handover.ending, self.handover.kept) = (Some(ending), None);
        Ok(())
    }

    /// Makes the next step fail on this rank when all ranks have their sums, or the completion of a step in
    /// the memory of a host when all have completed it.
    pub fn fail_when_ready_for_tests(&mut self) {
        self.handover.fails_when_ready = true;
    }

    /// Rolls back a step that has failed at this stage, as far as this rank can decide it alone.
    pub(in crate::replica) fn roll_back_ending(&mut self, ending: Ending) -> Result<(), Error> {
        let lacks_values = self.step.give_up();
        match ending.stage {
            Stage::Summing => {
                self.progress.steps -= 1;
                self.discard(ending)
            }
            Stage::Ready => {
                self.progress.steps -= 1;
                self.handover.ready = Some(ending);
                Ok(())
            }
            Stage::Stepped => {
                self.settle(ending.done);
                self.handover.lacks_values |= lacks_values;
                Ok(())
            }
        }
    }

    /// Restores everything but the parts to their state before a step of which no part has been changed.
    pub(in crate::replica) fn discard(&mut self, ending: Ending) -> Result<(), Error> {
        self.scaler.take_over(ending.scale);
        self.transforms.take_back()
    }

    /// Brings the parts of all ranks of `group` to one step, and divides them among these ranks anew. A
    /// collective. Returns false if no rank has the job's state yet.
    ///
    /// # Errors
    ///
    /// All owners of a part are gone ([`Error::OwnersLost`], on all ranks), a value is not finite (on all
    /// ranks), or a collective failed (naming the rank).
    pub(in crate::replica) fn meet_owners(&mut self, group: &Arc<Group>) -> Result<bool, Error> {
        // Nobody of the last group that is not in this one may read what changes now.
        self.weights.leave_group();
        let all: Vec<Rank> = (0..group.world_size()).map(Rank).collect();
        let reports = self.reports(group)?;
        let Some(decision) = decide(&reports) else { return Ok(false) };
        if let Some(ending) = self.handover.ready.take() {
            match decision.roles[group.rank().0] {
                Role::Steps => self.step_own_parts(ending)?,
                Role::Keeps | Role::Receives | Role::Begins => self.discard(ending)?,
            }
        }
        self.move_parts(group, &reports, &decision, &all)?;
        if let Some(step) = decision.steps.checked_sub(1) {
            // A step that has been completed here has not been checked yet.
            self.weights.name_not_finite(step)?;
        }
        Ok(true)
    }

    /// Gives the parts of ranks that leave to those that stay. A collective of all of them. Fails if a
    /// collective fails (naming the rank).
    pub fn hand_over(&mut self, stay: &[Rank]) -> Result<(), Error> {
        let group = self.ranks.group.clone();
        let reports = self.reports(&group)?;
        match decide(&reports) {
            Some(decision) if stay.len() < reports.len() => {
                self.move_parts(&group, &reports, &decision, stay)
            }
            _ => Ok(()),
        }
    }

    /// Returns what each of so many ranks needs of the arrays `all` of the job: everything, but of a divided
    /// optimizer's state only its own parts.
    pub fn needed(&self, all: &Holdings, ranks: usize) -> Vec<Holdings> {
        let Some(share) = &self.weights.share else { return vec![all.clone(); ranks] };
        let mut divided = all.filtered(|name| name.kind == StateKind::Optimizer).0;
        divided.dedup_by(|a, b| a.0 == b.0);
        let of_rank = |rank: usize| {
            let own = || share.owners().runs_of(Rank(rank));
            let parts = divided.iter().flat_map(|(name, _)| own().map(|run| (name.clone(), run)));
            let whole = all.filtered(|name| name.kind != StateKind::Optimizer).0;
            Holdings(whole.into_iter().chain(parts).collect())
        };
        (0..ranks).map(of_rank).collect()
    }

    fn reports(&self, group: &Group) -> Result<Vec<PartReport>, Error> {
        let steps = self.progress.joined.then_some(self.progress.steps);
        let own = self.weights.share.iter().flat_map(|share| share.runs().map(|(run, _)| run)).collect();
        let Handover { ready, lacks_values, .. } = &self.handover;
        let (is_ready, has_common_values) = (ready.is_some(), !lacks_values);
        let kept = self.kept().map(StateCopy::holdings).unwrap_or_default();
        let initial = self.initial_print();
        let report = PartReport { steps, is_ready, has_common_values, own, kept, initial };
        Ok(group.all_gather_value(&report)?)
    }

    /// State of other parts that this rank has kept and that is as old as its own.
    fn kept(&self) -> Option<&StateCopy> {
        let kept = self.handover.kept.as_ref().filter(|(steps, _)| *steps == self.progress.steps);
        kept.map(|(_, kept)| kept)
    }

    /// Makes a step of this rank's parts with sums that it has. The values of other parts stay as they were.
    fn step_own_parts(&mut self, ending: Ending) -> Result<(), Error> {
        if !ending.done.skipped {
            self.weights.withdraw();
            for bucket in self.step.order() {
                self.apply_bucket(bucket)?;
            }
            self.handover.lacks_values = true;
        }
        self.settle(ending.done);
        self.progress.steps += 1;
        self.handover.kept = None;
        Ok(())
    }

    /// Divides the parts among `ranks` of `group`, which have reported theirs. This rank keeps its own state
    /// until it has received all that it needs.
    fn move_parts(
        &mut self,
        group: &Arc<Group>,
        reports: &[PartReport],
        decision: &Decision,
        ranks: &[Rank],
    ) -> Result<(), Error> {
        let (layout, redundancy) = (self.weights.layout.clone(), self.config.redundancy);
        let scope = self.weights.optimizer.scope();
        let share = StateShare::new(group.clone(), &layout, scope, ranks, redundancy);
        // Before the first step each rank makes the optimizer's state itself.
        let begins = decision.steps == 0;
        let names = state_names(&mut *self.weights.optimizer).into_iter();
        let arrays: Vec<StateName> =
            names.filter(|_| !begins).map(|name| StateName::of_job(StateKind::Optimizer, name)).collect();
        let donor = decision.roles.iter().position(|role| *role != Role::Receives).map_or(Rank(0), Rank);
        let common = self.common_runs();
        let transfers = match decision.transfers(reports, share.owners(), &arrays, &common) {
            Ok(transfers) => transfers,
            Err(missing) => return Err(self.lost(group, donor, missing)?),
        };
        let mut state = match decision.roles[group.rank().0] {
            Role::Receives => StateCopy::new(layout.len()),
            Role::Keeps | Role::Steps | Role::Begins => {
                let mut own = StateCopy::of(layout.len(), |visit| self.weights.visit_state(visit));
                self.kept().into_iter().for_each(|kept| own.extend(kept));
                own
            }
        };
        self.check_store()?;
        transfer(group, &transfers, &mut state)?;
        let own = (self.last_steps(), self.notes());
        let (known, notes): (Vec<LastStep>, Notes) = group.broadcast_value(own, donor)?;
        if self.wants_parts(group) {
            self.weights.leave_group();
            self.weights.values.clear_parts()?;
        }
        self.weights.share = Some(share);
        self.weights.init_optimizer();
        self.check_store()?;
        state.retain(|name| name.kind == StateKind::Weights || !begins);
        state.fill(|visit| self.weights.visit_state(visit));
        self.progress.steps = decision.steps;
        self.set_last_steps(known);
        let keeps_values = self.weights.values.are_parts();
        state.retain(|name| name.kind == StateKind::Optimizer || keeps_values);
        let initial = self.handover.initial.filter(|_| begins);
        self.handover = Handover { kept: Some((decision.steps, state)), initial, ..Handover::default() };
        self.set_notes(notes)
    }

    /// Returns the error that names what no rank has any more, and its owners before, which `donor` knows. A
    /// collective.
    fn lost(&self, group: &Group, donor: Rank, Missing { name, run }: Missing) -> Result<Error, Error> {
        let owners = self.weights.share.iter().flat_map(|share| share.owners().of(run.start).to_vec());
        let owners: Vec<usize> = owners.map(|rank| rank.0).collect();
        let mut ranks: Vec<Rank> = group.broadcast_value(owners, donor)?.into_iter().map(Rank).collect();
        ranks.sort_unstable();
        let spans = self.weights.layout.spans();
        let parameter = spans.iter().find(|span| span.range().end > run.start);
        let array = match name.kind {
            StateKind::Weights => "the values".to_string(),
            _ => format!("`{}`", name.name),
        };
        let parameter = parameter.map(|span| span.spec.name.clone()).unwrap_or_default();
        Ok(Error::OwnersLost { ranks, array, parameter })
    }
}
