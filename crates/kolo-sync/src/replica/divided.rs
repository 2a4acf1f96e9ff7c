//! Values that are divided among the ranks: the core's calls around a step that changes them.

use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

use super::core::Core;
use super::state_share::StateShare;
use super::weights::Weights;
use crate::sharding::Sharding;
use kolo_comm::Group;
use kolo_optim::{Span, SpanId, state_names, visit_elements};
use kolo_reduction::state::{StateKind, StateName, StatePart, Visit};
use kolo_reduction::{BLOCK, Error, slices};
use kolo_values::division::{common_runs, held_runs};
use kolo_values::drift::compare_parts;
use kolo_values::fingerprints::{all, print};
use kolo_values::{DividedValues, FlatValues};

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
            let held = self.weights.runs_to_keep();
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
        self.weights.held_runs()
    }

    /// Bytes that the values take in this process's memory where ranks hold parts of them only.
    pub fn bytes_of_parts(&self) -> Option<u64> {
        match &self.weights.values {
            FlatValues::Parts(values) => values.bytes_in_memory(),
            _ => None,
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

    /// Compares what several owners hold: their state of the optimizer, and the values that are divided. A
    /// collective, if parts have several owners. Errors: [`Error::Drift`], or a collective failed.
    pub(super) fn compare_owners(&mut self, step: u64) -> Result<(), Error> {
        let Some(owners) = self.weights.share.as_ref().map(|share| share.owners().clone()) else {
            return Ok(());
        };
        let parts: Vec<_> = owners.parts().collect();
        if parts.iter().all(|(_, holders)| holders.len() < 2) {
            return Ok(());
        }
        let rank = self.ranks.group.rank();
        let own: Vec<Vec<u64>> = parts
            .iter()
            .map(|(run, holders)| match holders.contains(&rank) {
                true => self.weights.prints_of(run),
                false => Vec::new(),
            })
            .collect();
        self.check_store()?;
        let holders: Vec<_> = parts.iter().map(|(_, holders)| *holders).collect();
        let arrays = state_names(&mut *self.weights.optimizer);
        let layout = &self.weights.layout;
        compare_parts(&self.ranks.group, &holders, &own, step, |part, place| {
            let span = slices(layout, parts[part].0)[place / (arrays.len() + 1)].span;
            let name = &layout.span(span).spec.name;
            match (place % (arrays.len() + 1)).checked_sub(1) {
                Some(array) => format!("{}/{name}", arrays[array]),
                None => name.clone(),
            }
        })
    }

    /// Gathers the values of all tensors. Ends when all ranks have them, so that none leaves before.
    pub(super) fn gather_all(&mut self, divided: &DividedValues) -> Result<(), Error> {
        let mut all = vec![0.0; self.weights.layout.len()];
        for run in self.weights.held_runs() {
            all[run.clone()].copy_from_slice(&self.weights.values[run]);
        }
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
    /// Runs of flat memory whose values this rank keeps where values are divided.
    fn runs_to_keep(&self) -> Vec<Range<usize>> {
        let of_share = |share: &StateShare| held_runs(&self.layout, share.owners(), share.rank());
        self.share.as_ref().map_or_else(|| once(0..self.layout.len()).collect(), of_share)
    }

    /// Runs of flat memory whose values this rank holds.
    pub(super) fn held_runs(&self) -> Vec<Range<usize>> {
        match self.values.are_parts() {
            true => self.runs_to_keep(),
            false => once(0..self.layout.len()).collect(),
        }
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

    /// Returns the fingerprints of each tensor in a run that this rank owns: of its values, or 0 if all ranks
    /// have them, and of each array of the optimizer's state.
    fn prints_of(&mut self, run: &Range<usize>) -> Vec<u64> {
        let arrays = state_names(&mut *self.optimizer);
        let (mut prints, mut values) = (Vec::new(), Vec::new());
        for slice in slices(&self.layout.clone(), run) {
            let place = slice.place(&self.layout);
            prints.push(if self.values.are_parts() { print(&self.values[place.clone()]) } else { 0 });
            for array in &arrays {
                let name = StateName::of_job(StateKind::Optimizer, *array);
                // Blocks, so that a large tensor takes no large buffer.
                let blocks = place.clone().step_by(BLOCK).map(|start| {
                    values.clear();
                    self.visit_elements(&name, &(start..place.end.min(start + BLOCK)), &mut |_, state| {
                        values.extend_from_slice(state);
                    });
                    print(&values)
                });
                prints.push(all(blocks));
            }
        }
        prints
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

    /// Visits these elements of an array of values or of the optimizer's state, as far as this rank has them:
    /// `visit` gets their place in flat memory, and themselves.
    pub fn visit_elements(
        &mut self,
        name: &StateName,
        wanted: &Range<usize>,
        visit: &mut dyn FnMut(Range<usize>, &mut [f32]),
    ) {
        let common = |place: &Range<usize>| place.start.max(wanted.start)..place.end.min(wanted.end);
        match name.kind {
            StateKind::Weights => self.visit_values(&mut |StatePart { place, values, .. }| {
                let run = common(&place);
                if run.start < run.end {
                    visit(run.clone(), &mut values[run.start - place.start..run.end - place.start]);
                }
            }),
            StateKind::Optimizer => {
                let all = 0..self.layout.len();
                let runs = match &self.share {
                    Some(share) => share.runs().collect(),
                    None => vec![(all.clone(), all)],
                };
                for (place, state) in runs {
                    let run = common(&place);
                    if run.start < run.end {
                        let first = state.start + (run.start - place.start);
                        let elements = first..first + run.len();
                        visit_elements(&mut *self.optimizer, &name.name, elements, &mut |own, values| {
                            visit(run.start + (own.start - first)..run.start + (own.end - first), values);
                        });
                    }
                }
            }
            StateKind::Reduction => {}
        }
    }

    /// Sets all values that this rank holds to 0.
    pub(super) fn clear_values(&mut self) {
        self.visit_values(&mut |part| part.values.fill(0.0));
    }
}
