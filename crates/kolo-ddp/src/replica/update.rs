//! The way back of a gradient: how a bucket that has been reduced changes the values.
//!
//! It runs on the thread that asks for values, in [`Replica::step`](super::Replica::step) or in the next
//! forward pass.

use std::ops::Range;
use std::time::Instant;

use super::core::Core;
use super::overflow::Overflow;
use super::undo::Undo;
use crate::buckets::{BLOCK, Slice};
use crate::error::Error;
use crate::last_step::LastStep;
use crate::step::Step;
use kolo_optim::{Kind, Layout, Optimizer, Scope, SpanGroups, SpanId, Update};

/// Elements that are stepped at a time, and added just before where a sum is added when it is read: so few
/// that adding some overlaps with stepping others. With 16,384 (64 KiB) a step of ResNet-18 takes an eighth
/// longer (docs/benchmarks.md).
const PIECE: usize = 128;

/// Elements that are looked at together when they have been stepped, piece by piece: 8 KiB of values, which
/// are still in the first cache.
const RUN: usize = 16 * PIECE;

/// What the buckets of a step change, and how.
pub(crate) struct Applying<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) values: &'a mut [f32],
    pub(crate) undo: Option<&'a mut Undo>,
    pub(crate) optimizer: &'a mut dyn Optimizer,
    pub(crate) groups: &'a SpanGroups,
    /// Takes the gradient of one tensor that came in several buckets, or a piece of a gradient; grows to the
    /// longest of them in the first step.
    pub(crate) room: &'a mut Vec<f32>,
    /// For each tensor whether no shard has used it: it, and the optimizer's state of it, stay as they are
    /// then.
    pub(crate) unused: &'a [bool],
    /// Notes what is not finite afterwards.
    pub(crate) overflow: &'a mut Overflow,
    /// What the summed gradient is multiplied by, and by what besides where it is a parameter's.
    pub(crate) scale: f64,
    pub(crate) factor: f64,
}

impl Applying<'_> {
    /// Applies a bucket that is back. Of a tensor that the optimizer needs whole, and of which other buckets
    /// are still due, nothing changes; the last of them changes all of it.
    ///
    /// # Errors
    ///
    /// A collective has failed (naming the rank).
    pub(crate) fn bucket(mut self, bucket: usize, step: &mut Step) -> Result<(), Error> {
        if self.optimizer.scope() == Scope::Element {
            return self.pieces(bucket, step);
        }
        let (bucket, gradient) = step.collect(bucket)?;
        let mut cut = Vec::new();
        for slice in &bucket.slices {
            match self.needs_more(slice) {
                true => cut.push(slice.span),
                false => self.slice(slice, &gradient[slice.range()]),
            }
        }
        cut.into_iter().try_for_each(|id| self.tensor(id, step))
    }

    /// Applies a bucket that is back where each element is stepped by itself: piece by piece, so that a sum
    /// that is added when it is read is still in the cache when the optimizer takes it.
    fn pieces(&mut self, bucket: usize, step: &mut Step) -> Result<(), Error> {
        let (bucket, reduced) = step.collect_once(bucket)?;
        let mut room = std::mem::take(self.room);
        room.resize(room.len().max(BLOCK), 0.0);
        for slice in &bucket.slices {
            // What is undone, and what is told of a tensor that no shard has used, are blocks.
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
        *self.room = room;
        Ok(())
    }

    /// Whether a slice is a part of a tensor that the optimizer can only step as a whole.
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
        let mut whole = std::mem::take(self.room);
        whole.resize(len.max(whole.len()), 0.0);
        for bucket in buckets {
            let (bucket, gradient) = step.collect(bucket)?;
            for slice in bucket.slices.iter().filter(|slice| slice.span == id) {
                whole[slice.elements.clone()].copy_from_slice(&gradient[slice.range()]);
            }
        }
        self.slice(&Slice { span: id, elements: 0..len, offset: 0 }, &whole[..len]);
        *self.room = whole;
        Ok(())
    }

    /// Steps a slice, and looks at what has become of it.
    pub(crate) fn slice(&mut self, slice: &Slice, gradient: &[f32]) {
        self.step_slice(slice, gradient);
        self.look(slice);
    }

    fn look(&mut self, slice: &Slice) {
        self.overflow.look(slice.span, &self.values[slice.place(self.layout)]);
    }

    /// Steps a slice. One of a tensor that no shard has used stays as it is, but for what a reduction still
    /// owes it from earlier steps; that is told by blocks, so that it does not matter how the tensor was cut.
    fn step_slice(&mut self, slice: &Slice, gradient: &[f32]) {
        if !self.unused[slice.span.0] {
            return self.update(slice, gradient);
        }
        let len = match self.optimizer.scope() {
            Scope::Element => BLOCK,
            Scope::Tensor => gradient.len().max(1),
        };
        for (start, part) in (0..).step_by(len).zip(gradient.chunks(len)) {
            if part.iter().any(|value| *value != 0.0) {
                let first = slice.elements.start + start;
                let elements = first..first + part.len();
                self.update(&Slice { span: slice.span, elements, offset: slice.offset + start }, part);
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
                Kind::Frozen => {}
                Kind::Parameter { decay } => {
                    let (scale, group) = ((self.scale * self.factor) as f32, self.groups.of(slice.span));
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
                    let scale = self.scale as f32;
                    values.iter_mut().zip(gradient).for_each(|(value, change)| *value += change * scale);
                }
            }
        };
        match &mut self.undo {
            Some(undo) => undo.update(slice, self.values, update),
            None => {
                let range = start..start + slice.elements.len();
                update(range.clone(), &mut self.values[range]);
            }
        }
    }
}

impl Core {
    /// Makes all updates that are still to be made.
    pub(crate) fn apply_outstanding(&mut self) -> Result<(), Error> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        self.overflow.refuse()?;
        if self.step.outstanding() > 0 {
            self.collect_what_cannot_be_undone()?;
            self.step.order().into_iter().try_for_each(|bucket| self.apply(bucket))?;
        }
        Ok(())
    }

    /// Makes the updates of a tensor that are still to be made.
    pub(crate) fn apply_tensor(&mut self, id: SpanId) -> Result<(), Error> {
        if self.step.outstanding() > 0 && !self.traits().is_delayed {
            self.collect_what_cannot_be_undone()?;
        }
        for bucket in self.step.buckets_of(id) {
            // The last bucket of a step may end it with other buckets.
            if self.step.outstanding() > 0 {
                self.apply(bucket)?;
            }
        }
        Ok(())
    }

    /// Waits for all buckets where a step that fails halfway would be done again with updates in it: in an
    /// elastic job without a copy of the values. Once all is back nothing can fail halfway.
    fn collect_what_cannot_be_undone(&mut self) -> Result<(), Error> {
        if self.config.elastic && self.undo.is_none() {
            let order = self.step.order();
            order.into_iter().try_for_each(|bucket| self.step.wait(bucket))?;
        }
        Ok(())
    }

    /// Whether reductions reach into the next forward pass. To take a step back there costs a copy of the
    /// values, which pays where the wire is slow.
    pub(crate) fn overlaps(&self) -> bool {
        let slow = self.group.reach() == kolo_comm::Distance::Network;
        // Where updates are one step late no step is taken back, but all since the last copy.
        self.config.forward_overlap && (slow || !self.config.elastic || self.traits().is_delayed)
    }

    /// Updates the values of a bucket, if that is still to be done.
    pub(crate) fn apply(&mut self, bucket: usize) -> Result<(), Error> {
        if !self.step.is_due(bucket) {
            return Ok(());
        }
        self.step.wait(bucket)?;
        self.step.applied(bucket);
        if self.server {
            return self.step.ended().map_or(Ok(()), |done| self.complete(done));
        }
        let applying = Applying {
            layout: &self.layout,
            values: &mut self.values,
            undo: self.undo.as_mut(),
            optimizer: &mut *self.optimizer,
            groups: &self.groups,
            room: &mut self.room,
            unused: &self.unused,
            overflow: &mut self.overflow,
            scale: self.scale,
            factor: self.factor,
        };
        let start = Instant::now();
        applying.bucket(bucket, &mut self.step)?;
        self.step.updated(bucket, start);
        self.step.ended().map_or(Ok(()), |done| self.complete(done))
    }

    /// Whether nothing but the optimizer looks at a reduced gradient, and at each element once. Where updates
    /// are one step late a sum that is added when it is read would keep the gradients of two steps.
    fn reads_once(&self) -> bool {
        self.optimizer.scope() == Scope::Element
            && self.transforms.is_empty()
            && !self.noise.is_on()
            && !self.scaler.is_on()
            && !self.traits().is_delayed
    }

    /// All updates of a step are in.
    pub(crate) fn complete(&mut self, done: LastStep) -> Result<(), Error> {
        if let Some(undo) = &mut self.undo {
            undo.commit();
        }
        if let Some(noise_scale) = done.noise_scale {
            self.noise.known = noise_scale;
        }
        // Nobody must take for the model's what no step has changed.
        if self.server && !self.values.first().is_some_and(|value| value.is_nan()) {
            self.values.fill(f32::NAN);
        }
        if self.overflow.is_to_be_named() && !self.server {
            let Core { layout, values, optimizer, overflow, .. } = self;
            overflow.name(done.step, layout, values, &mut **optimizer)?;
        }
        self.transforms.end_step();
        self.last = Some(done);
        self.step.prepare_next(self.reads_once())
    }
}
