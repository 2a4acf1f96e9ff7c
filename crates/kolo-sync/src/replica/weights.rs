//! The values of a model, its optimizer, and the code that applies a bucket to them.

use std::ops::Range;
use std::sync::Arc;

use super::first_values::FirstValues;
use super::overflow::{Overflow, held_are_finite};
use super::state_share::StateShare;
use kolo_host::HostState;
use kolo_optim::finite::are_finite;
use kolo_optim::{
    Kind, Layout, Optimizer, Scope, SpanGroups, SpanId, Turns, Update, find_in_state, state_is_finite,
    state_names, visit_state,
};
use kolo_reduction::state::{StateKind, StateName, StatePart, Visit};
use kolo_reduction::{BLOCK, Error, Slice};
use kolo_step::Step;
use kolo_values::division::is_divided;
use kolo_values::{DividedValues, FlatValues, LendableValues, Undo};

/// Elements per optimizer call. A sum that is added when it is read is added one such piece at a time, just
/// before the call: pieces are so short that adding one overlaps with stepping another. With 16,384 (64 KiB)
/// a step of ResNet-18 takes an eighth longer (docs/notes/benchmarks.md).
const PIECE: usize = 128;

/// Elements that are checked together after they have been stepped piece by piece: 8 KiB of values, which
/// are still in the first-level cache.
const RUN: usize = 16 * PIECE;

/// Values of a model in flat memory, and their optimizer.
pub struct Weights {
    pub layout: Arc<Layout>,
    /// The values. Tensors of another library may lie there ([`FlatValues::lend`]).
    pub values: FlatValues,
    /// Division of the values; `None` if this rank has all of them.
    pub divided: Option<Arc<DividedValues>>,
    /// Values that a caller has gathered: of the whole model, or of one tensor.
    pub(crate) gathered: Vec<f32>,
    pub optimizer: Box<dyn Optimizer>,
    pub(crate) groups: SpanGroups,
    /// Tensors that each step trains.
    pub(crate) turns: Turns,
    /// Number of the last step that was begun, from 0.
    step: u64,
    /// Buffer for the gradient of one tensor that came in several buckets, or for a piece of a gradient. It
    /// grows to the longest of them in the first step.
    room: Vec<f32>,
    pub undo: Option<Undo>,
    /// This rank's part of the optimizer's state; `None` if it has all of it.
    pub(crate) share: Option<StateShare>,
    /// The state in the memory of this host; `None` elsewhere, and before the workers have met.
    pub(crate) host: Option<HostState>,
    /// Findings about values that are not finite.
    pub overflow: Overflow,
    /// True for each tensor that no shard of the last step used. Such a tensor, and its optimizer state,
    /// stay as they are.
    pub(crate) unused: Vec<bool>,
    pub(crate) scales: Scales,
}

/// Factors of the last step's updates.
#[derive(Clone, Copy)]
pub struct Scales {
    /// Factor for the summed gradient.
    pub(crate) sum: f64,
    /// Additional factor for gradients of parameters, from the step's transforms.
    pub(crate) parameters: f64,
}

kolo_comm::opaque_debug!(Weights { step });

impl Weights {
    /// Creates the weights; the optimizer already has its state for the whole layout, or for `share`.
    pub(crate) fn new(
        layout: Arc<Layout>,
        values: FirstValues,
        optimizer: Box<dyn Optimizer>,
        groups: SpanGroups,
        turns: Turns,
        share: Option<StateShare>,
    ) -> Self {
        let values = match (values, &share) {
            (FirstValues::Parts(values, _), _) => values,
            (FirstValues::Whole(values), Some(_)) => FlatValues::Shared(values),
            (FirstValues::Whole(values), None) => {
                FlatValues::Lendable(LendableValues::new(layout.clone(), &values))
            }
        };
        let mut weights = Weights {
            share,
            host: None,
            overflow: Overflow::default(),
            unused: vec![false; layout.spans().len()],
            values,
            layout,
            divided: None,
            gathered: Vec::new(),
            optimizer,
            groups,
            turns,
            step: 0,
            room: Vec::new(),
            undo: None,
            scales: Scales { sum: 0.0, parameters: 1.0 },
        };
        weights.look_anew();
        weights
    }

    /// Begins the updates of step `step`, counted from 0, of a job that has skipped some steps.
    pub(crate) fn begin(&mut self, step: u64, skipped_steps: u64, learning_rate: f64) {
        self.step = step;
        self.optimizer.begin(self.turns.updates(step) - skipped_steps, learning_rate);
    }

    /// Visits the values and the optimizer's state.
    pub fn visit_state(&mut self, visit: &mut Visit<'_>) {
        self.visit_values(visit);
        let share = self.share.as_ref();
        visit_state(&mut *self.optimizer, &mut |name, start, values| {
            let name = StateName::of_job(StateKind::Optimizer, name);
            let end = start + values.len();
            let Some(share) = share else {
                return visit(StatePart { name, place: start..end, values });
            };
            for (place, state) in share.runs() {
                let (first, last) = (state.start.max(start), state.end.min(end));
                if first < last {
                    let place = place.start + (first - state.start)..place.start + (last - state.start);
                    let values = &mut values[first - start..last - start];
                    visit(StatePart { name: name.clone(), place, values });
                }
            }
        });
    }

    /// Creates the optimizer's state, as it is before the first step.
    pub(crate) fn init_optimizer(&mut self) {
        let layout = self.share.as_ref().map_or(&*self.layout, StateShare::layout);
        self.optimizer.init(layout);
    }

    /// Averages of all values, if the optimizer has them. A collective if its state is divided.
    pub(crate) fn averages(&mut self) -> Result<Option<Vec<f32>>, Error> {
        let Some(share) = &self.share else {
            return Ok(kolo_optim::averages(&mut *self.optimizer, &self.values));
        };
        let own: Vec<f32> = share.runs().flat_map(|(run, _)| &self.values[run]).copied().collect();
        let Some(own) = kolo_optim::averages(&mut *self.optimizer, &own) else { return Ok(None) };
        let mut all = vec![0.0; self.values.len()];
        share.runs().for_each(|(run, state)| all[run].copy_from_slice(&own[state]));
        share.gather(&mut all)?;
        Ok(Some(all))
    }

    /// Declares that values that are not finite now were so from the start.
    pub(crate) fn look_anew(&mut self) {
        self.overflow = Overflow::new(&self.layout, &self.values, &self.held_runs());
    }

    /// Does so where ranks may hold parts of the values only: then it is a collective.
    pub(crate) fn look_anew_together(&mut self) -> Result<(), Error> {
        self.look_anew();
        if let Some(share) = self.share.as_ref().filter(|_| self.values.are_parts()) {
            let given = share.all(self.overflow.given())?;
            self.overflow.given_on_any(given);
        }
        Ok(())
    }

    /// Finds the first tensor that is not finite after a step, if there is one. A collective if the values
    /// are finite and the optimizer's state is divided, and wherever values are divided. Errors:
    /// [`Error::ValuesNotFinite`], the same on all ranks; or a collective failed (naming the rank).
    pub(crate) fn name_overflow(&mut self, step: u64) -> Result<(), Error> {
        let own = self.overflow.is_to_be_named();
        match self
            .share
            .as_ref()
            .filter(|_| self.values.are_parts())
            .map_or(Ok(own), |share| share.any(own))?
        {
            true => self.name_not_finite(step),
            false => Ok(()),
        }
    }

    /// Checks the optimizer's state before it is saved. A collective if the state is divided.
    pub(crate) fn check_state(&mut self, step: u64) -> Result<(), Error> {
        let own = !state_is_finite(&mut *self.optimizer);
        match self.share.as_ref().map_or(Ok(own), |share| share.any(own))? {
            true => self.name_not_finite(step),
            false => Ok(()),
        }
    }

    /// Finds the first tensor that is not finite after a step, if there is one. A collective if the values
    /// are finite and the optimizer's state is divided.
    pub(super) fn name_not_finite(&mut self, step: u64) -> Result<(), Error> {
        let held = self.held_runs();
        let Weights { layout, values, optimizer, overflow, share, .. } = self;
        let are_parts = values.are_parts();
        let is_wrong = |id: SpanId, values: &[f32]| !overflow.is_given(id) && !are_finite(values);
        let wrong = |values: &[f32]| {
            let mut spans = (0..layout.spans().len()).map(SpanId);
            let is_whole = |id: SpanId| held_are_finite(values, &held, &layout.span(id).range());
            spans.find(|id| !overflow.is_given(*id) && !is_whole(*id))
        };
        let name = |id: SpanId| layout.span(id).spec.name.clone();
        let of_values = match share.as_ref().filter(|_| are_parts) {
            // Each rank knows its own parts.
            Some(share) => {
                let found: Vec<Option<SpanId>> = share.all(&wrong(values))?;
                found.into_iter().flatten().min()
            }
            None => wrong(values),
        };
        let tensor = match (of_values, share) {
            (Some(id), _) => Some(name(id)),
            (None, share) => {
                let found = match share {
                    None => find_in_state(&mut **optimizer, layout, is_wrong),
                    Some(share) => share.find(&mut **optimizer, is_wrong)?,
                };
                found.map(|(array, id)| format!("{}/{}", state_names(&mut **optimizer)[array], name(id)))
            }
        };
        overflow.name(step, tensor)
    }

    /// Applies a bucket that is back, as far as this rank steps it. If the optimizer needs whole tensors, a
    /// tensor cut across buckets changes only when its last bucket is applied.
    pub(crate) fn apply_bucket(&mut self, bucket: usize, step: &mut Step) -> Result<(), Error> {
        if self.optimizer.scope() == Scope::Element {
            return self.pieces(bucket, step);
        }
        let (slices, reduced) = step.collect_own(bucket)?;
        let gradient = reduced.result();
        let mut cut = Vec::new();
        for slice in slices {
            match self.needs_more(slice) {
                true => cut.push(slice.span),
                false => self.slice(slice, &gradient[slice.range()]),
            }
        }
        cut.into_iter().try_for_each(|id| self.tensor(id, step))
    }

    /// Applies a bucket that is back, for an optimizer that steps each element by itself. It works piece by
    /// piece, so that a sum that is added when it is read is still in the cache when the optimizer takes it.
    fn pieces(&mut self, bucket: usize, step: &mut Step) -> Result<(), Error> {
        let (slices, reduced) = step.collect_own(bucket)?;
        let mut room = std::mem::take(&mut self.room);
        room.resize(room.len().max(BLOCK), 0.0);
        for slice in slices {
            // Undo, and the check for a nonzero gradient of an unused tensor, work in blocks.
            let in_blocks = self.undo.is_some() || self.unused[slice.span.0];
            let (run, piece) = if in_blocks { (BLOCK, BLOCK) } else { (RUN, PIECE) };
            for run in slice.runs(run) {
                for piece in run.runs(piece) {
                    let gradient = reduced.read_once(piece.range(), &mut room[..piece.elements.len()]);
                    self.step_slice(&piece, gradient);
                }
                self.look(&run);
            }
        }
        self.room = room;
        Ok(())
    }

    /// Returns true if a slice is a part of a tensor that the optimizer can only step as a whole.
    fn needs_more(&self, slice: &Slice) -> bool {
        let span = self.layout.span(slice.span);
        slice.elements.len() < span.len
            && span.spec.kind.is_trained()
            && self.optimizer.scope() == Scope::Tensor
    }

    /// Applies a tensor that is cut across buckets, if all of them are back.
    fn tensor(&mut self, id: SpanId, step: &mut Step) -> Result<(), Error> {
        let buckets = step.buckets_of(id);
        if buckets.clone().any(|bucket| step.is_due(bucket)) {
            return Ok(());
        }
        let len = self.layout.span(id).len;
        let mut whole = std::mem::take(&mut self.room);
        whole.resize(len.max(whole.len()), 0.0);
        for bucket in buckets {
            let (bucket, gradient) = step.collect(bucket)?;
            for slice in bucket.slices.iter().filter(|slice| slice.span == id) {
                whole[slice.elements.clone()].copy_from_slice(&gradient[slice.range()]);
            }
        }
        self.slice(&Slice { span: id, elements: 0..len, offset: 0 }, &whole[..len]);
        self.room = whole;
        Ok(())
    }

    /// Steps a slice, and checks its new values.
    pub(crate) fn slice(&mut self, slice: &Slice, gradient: &[f32]) {
        self.step_slice(slice, gradient);
        self.look(slice);
    }

    /// Checks the values of a slice, as far as this rank holds them.
    pub(crate) fn look(&mut self, slice: &Slice) {
        let Weights { layout, values, overflow, share, .. } = self;
        let divides = |_: &&StateShare| values.are_parts() && is_divided(layout.span(slice.span));
        let Some(share) = share.as_ref().filter(divides) else {
            return overflow.look(slice.span, &values[slice.place(layout)]);
        };
        let own = share.owners().cut(layout, slice).filter(|(_, owners)| owners.contains(&share.rank()));
        own.for_each(|(part, _)| overflow.look(part.span, &values[part.place(layout)]));
    }

    /// Steps a slice. A tensor that no shard has used stays as it is, except for what a reduction still owes
    /// it from earlier steps. That is decided block by block, so that it does not depend on how the tensor
    /// was cut.
    pub(super) fn step_slice(&mut self, slice: &Slice, gradient: &[f32]) {
        if !self.unused[slice.span.0] {
            return self.update(slice, gradient);
        }
        let len = match self.optimizer.scope() {
            Scope::Element => BLOCK,
            Scope::Tensor => gradient.len().max(1),
        };
        for (run, part) in slice.runs(len).zip(gradient.chunks(len)) {
            if part.iter().any(|value| *value != 0.0) {
                self.update(&run, part);
            }
        }
    }

    fn update(&mut self, slice: &Slice, gradient: &[f32]) {
        let span = self.layout.span(slice.span);
        let start = span.offset + slice.elements.start;
        let mut update = |range: Range<usize>, values: &mut [f32]| {
            let gradient = &gradient[range.start - start..range.end - start];
            match span.spec.kind {
                Kind::Parameter { .. } if self.groups.is_frozen(slice.span) => {}
                Kind::Parameter { .. } if self.turns.leaves(self.step, slice.span) => {}
                Kind::Frozen => {}
                Kind::Parameter { decay } => {
                    let range = self.share.as_ref().map_or(range.clone(), |share| share.place(range));
                    let (scale, group) =
                        ((self.scales.sum * self.scales.parameters) as f32, self.groups.of(slice.span));
                    self.optimizer.update(Update {
                        range,
                        parameters: values,
                        gradient,
                        scale,
                        decay,
                        group,
                    });
                }
                Kind::Statistic => {
                    let scale = self.scales.sum as f32;
                    values.iter_mut().zip(gradient).for_each(|(value, change)| *value += change * scale);
                }
            }
        };
        match &mut self.undo {
            Some(undo) => undo.update(slice, self.values.of_tensor_mut(slice.span, span.range()), update),
            None => {
                let range = start..start + slice.elements.len();
                update(range.clone(), self.values.of_tensor_mut(slice.span, range));
            }
        }
    }
}
