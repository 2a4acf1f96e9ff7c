//! Values that are divided among the ranks: the core's calls around a step that changes them.

use std::ops::Range;
use std::sync::Arc;

use super::core::Core;
use super::weights::Weights;
use crate::sharding::Sharding;
use kolo_comm::Group;
use kolo_optim::{Span, SpanId};
use kolo_reduction::Error;
use kolo_reduction::state::{StateKind, StateName, StatePart, Visit};
use kolo_values::DividedValues;
use kolo_values::fingerprints::{all, print};

impl Core {
    /// Divides the values among their owners, if they are to be and are not yet. A collective.
    ///
    /// # Errors
    ///
    /// Errors of [`DividedValues::new`].
    pub(super) fn divide_values(&mut self, group: &Arc<Group>) -> Result<(), Error> {
        let Weights { layout, values, divided, share, .. } = &mut self.weights;
        let is_wanted = self.config.sharding == Sharding::Parameters && group.world_size() > 1;
        if let Some(share) = share.as_ref().filter(|_| is_wanted && divided.is_none()) {
            *divided = Some(Arc::new(DividedValues::new(group, layout, share.owners(), values)?));
            self.weights.init_optimizer();
            self.check_store()?;
        }
        Ok(())
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
        let whole = 0..self.weights.layout.len();
        self.weights.divided.as_ref().map_or_else(|| vec![whole], |divided| divided.runs())
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
    /// fingerprint is for a trace only, and costs a gather.
    ///
    /// # Errors
    ///
    /// An owner died, left or did not answer (naming it).
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
            divided.publish(&mut self.values, is_new);
        }
    }

    /// Visits the values that this rank holds.
    pub(super) fn visit_values(&mut self, visit: &mut Visit<'_>) {
        let name = StateName::of_job(StateKind::Weights, "");
        let Some(divided) = self.divided.clone() else {
            return visit(StatePart::whole(name, &mut self.values));
        };
        // The caller may change them, or only read.
        self.withdraw();
        for place in divided.runs() {
            visit(StatePart { name: name.clone(), values: &mut self.values[place.clone()], place });
        }
        self.publish(false);
    }

    /// Sets all values that this rank holds to 0.
    pub(super) fn clear_values(&mut self) {
        self.visit_values(&mut |part| part.values.fill(0.0));
    }
}
