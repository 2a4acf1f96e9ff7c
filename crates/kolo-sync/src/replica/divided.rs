//! Values that are divided among the ranks: the core's calls around a step that changes them.

use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

use super::core::Core;
use super::state_share::StateShare;
use super::weights::Weights;
use crate::sharding::Sharding;
use kolo_comm::Group;
use kolo_optim::{Span, SpanId};
use kolo_reduction::Error;
use kolo_reduction::state::{StateKind, StateName, StatePart, Visit};
use kolo_values::DividedValues;
use kolo_values::division::{common_runs, held_runs};
use kolo_values::fingerprints::{all, print};

impl Core {
    /// Returns true if the ranks of a group hold parts of the values only: where there are several, or others
    /// may come.
    pub(super) fn wants_parts(&self, group: &Group) -> bool {
        let is_wanted = group.world_size() > 1 || self.config.elastic || self.weights.values.are_parts();
        self.config.sharding == Sharding::Parameters && is_wanted
    }

    /// Divides the values among their owners, if they are to be and are not yet, and shares them with the
    /// ranks of a group. A collective.
    pub(super) fn divide_values(&mut self, group: &Arc<Group>) -> Result<(), Error> {
        let is_wanted = self.wants_parts(group);
        if is_wanted && !self.weights.values.are_parts() {
            self.handover.initial = self.initial_print();
            let held = self.weights.held_runs();
            self.weights.values.keep(&held)?;
            self.weights.init_optimizer();
            self.check_store()?;
        }
        let Weights { layout, values, divided, share, .. } = &mut self.weights;
        if let Some(share) = share.as_ref().filter(|_| is_wanted) {
            let divided = divided.get_or_insert_with(|| Arc::new(DividedValues::new(layout)));
            divided.join(group, share.owners(), values)?;
        }
        Ok(())
    }

    /// Fingerprint of all initial values of a job whose ranks hold parts; `None` after the first step, or
    /// where it is not needed.
    pub(super) fn initial_print(&self) -> Option<u64> {
        let is_needed = self.config.sharding == Sharding::Parameters && self.progress.steps == 0;
        match self.weights.values.are_parts() {
            true => self.handover.initial.filter(|_| is_needed),
            false => is_needed.then(|| self.print()),
        }
    }

    /// Runs of flat memory whose values all ranks have.
    pub(super) fn common_runs(&self) -> Vec<Range<usize>> {
        match self.config.sharding {
            Sharding::Parameters => common_runs(&self.weights.layout),
            _ => once(0..self.weights.layout.len()).collect(),
        }
    }

    /// Returns the division of the values, if a tensor is divided.
    pub fn divided(&self, id: SpanId) -> Option<&Arc<DividedValues>> {
        self.weights.divided.as_ref().filter(|divided| divided.is_divided(id))
    }

    /// Returns true if ranks hold parts of the values only.
    pub fn divides_values(&self) -> bool {
        self.weights.divided.is_some()
    }

    /// Runs of flat memory whose values this rank holds.
    pub fn held_values(&self) -> Vec<Range<usize>> {
        match self.weights.values.are_parts() {
            true => self.weights.held_runs(),
            false => once(0..self.weights.layout.len()).collect(),
        }
    }

    /// Values of one tensor after all steps so far. Of a divided one they are gathered, as a copy.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed, or an owner died, left or did not answer (naming the rank).
    pub fn tensor(&mut self, id: SpanId) -> Result<&[f32], Error> {
        self.apply_outstanding()?;
        if let Some(divided) = self.divided(id) {
            self.weights.gathered = divided.gather(id)?;
            return Ok(&self.weights.gathered);
        }
        Ok(&self.weights.values[self.weights.layout.span(id).range()])
    }

    /// Fingerprint of all values, none of which is divided.
    pub(super) fn print(&self) -> u64 {
        let Weights { layout, values, .. } = &self.weights;
        all(layout.spans().iter().map(|span| print(&values[span.range()])))
    }

    /// Fingerprints of all tensors. A divided one has one owner, with whom nobody could disagree: its
    /// fingerprint is for a trace only, and costs a gather. Errors: an owner died, left or did not answer
    /// (naming it).
    pub(super) fn prints(&self) -> Result<Vec<u64>, Error> {
        let Weights { layout, values, .. } = &self.weights;
        let of = |(number, span): (usize, &Span)| match self.divided(SpanId(number)) {
            None => Ok(print(&values[span.range()])),
            Some(divided) if self.observers.verifier.is_traced() => {
                Ok(print(&divided.gather(SpanId(number))?))
            }
            Some(_) => Ok(0),
        };
        layout.spans().iter().enumerate().map(of).collect()
    }

    /// Gathers the values of all tensors. Ends when all ranks have them, so that none leaves before.
    pub(super) fn gather_all(&mut self, divided: &DividedValues) -> Result<(), Error> {
        let mut all = self.weights.values.to_vec();
        for (number, span) in self.weights.layout.spans().iter().enumerate() {
            if divided.is_divided(SpanId(number)) {
                all[span.range()].copy_from_slice(&divided.gather(SpanId(number))?);
            }
        }
        self.weights.gathered = all;
        Ok(self.ranks.group.barrier()?)
    }
}

impl Weights {
    /// Runs of flat memory whose values this rank holds where values are divided.
    fn held_runs(&self) -> Vec<Range<usize>> {
        let of_share = |share: &StateShare| held_runs(&self.layout, share.owners(), share.rank());
        self.share.as_ref().map_or_else(|| once(0..self.layout.len()).collect(), of_share)
    }

    /// Stops sharing divided values with the ranks of the last group.
    pub(super) fn leave_group(&mut self) {
        self.gathered = Vec::new();
        if let Some(divided) = &self.divided {
            divided.leave(&mut self.values);
        }
    }

    /// Lets the values change.
    pub(super) fn withdraw(&mut self) {
        self.gathered = Vec::new();
        if let Some(divided) = &self.divided {
            divided.withdraw(&mut self.values);
        }
    }

    /// Lets other ranks read the values; `is_new` says that all ranks have changed theirs.
    pub(super) fn publish(&mut self, is_new: bool) {
        if let Some(divided) = &self.divided {
            divided.publish(&self.values, is_new);
        }
    }

    /// Visits the values that this rank holds.
    pub(super) fn visit_values(&mut self, visit: &mut Visit<'_>) {
        let name = StateName::of_job(StateKind::Weights, "");
        if !self.values.are_parts() {
            return visit(StatePart::whole(name, &mut self.values));
        }
        // The caller may change them, or only read.
        self.withdraw();
        for place in self.held_runs() {
            visit(StatePart { name: name.clone(), values: &mut self.values[place.clone()], place });
        }
        self.publish(false);
    }

    /// Sets all values that this rank holds to 0.
    pub(super) fn clear_values(&mut self) {
        self.visit_values(&mut |part| part.values.fill(0.0));
    }
}
