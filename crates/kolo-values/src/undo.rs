//! Undo keeps the values that a step overwrites until the step is complete, so that it can be repeated if a
//! worker dies.
//!
//! Updates are applied bucket by bucket, some of them in the next forward pass. A step that fails meanwhile
//! has updated some blocks and not others. The old values of the updated blocks are needed to compute the
//! other blocks' gradients again. Their new values, and the optimizer's state that belongs to them, are
//! final, because a sum over all shards is the same whichever ranks compute it. So Undo keeps both: the step
//! goes back to the old values, and when it reaches an updated block again it takes the new values from
//! here.
//!
//! It works in blocks, not buckets, because the next group may cut its buckets differently. An optimizer
//! that steps whole tensors ([`Scope::Tensor`](kolo_optim::Scope)) changes all blocks of a tensor together.
//! The cost is a copy of the values.

use std::ops::Range;

use kolo_optim::{Layout, Scope, Span, SpanId};
use kolo_reduction::{BLOCK, Slice, blocks};

/// State of a block in the current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not updated yet.
    Old,
    /// Updated; `other` holds its old values.
    Updated,
    /// Updated and rolled back; `other` holds its new values.
    Reverted,
}

/// Second version of the blocks that the current step has updated: the old values, or the new ones if the
/// step has been rolled back.
#[derive(Clone)]
pub struct Undo {
    /// For each element of flat memory, the version that is not in the model.
    other: Vec<f32>,
    /// Number of each span's first block.
    first: Vec<usize>,
    /// Elements of flat memory in each block.
    blocks: Vec<Range<usize>>,
    states: Vec<State>,
}

kolo_comm::opaque_debug!(Undo);

impl Undo {
    /// Creates the record of a step of which nothing is updated.
    pub fn new(layout: &Layout) -> Self {
        let blocks: Vec<Range<usize>> = blocks(layout, Scope::Element).collect();
        let first = |span: &Span| blocks.partition_point(|block| block.start < span.offset);
        let first = layout.spans().iter().map(first).collect();
        Undo { other: vec![0.0; layout.len()], states: vec![State::Old; blocks.len()], first, blocks }
    }

    /// Runs `update` on the elements of a slice that are not updated yet; `values` are those of its tensor.
    pub fn update(
        &mut self,
        slice: &Slice,
        values: &mut [f32],
        mut update: impl FnMut(Range<usize>, &mut [f32]),
    ) {
        let blocks = self.blocks_of(slice);
        if blocks.is_empty() {
            return;
        }
        // Start of the tensor in flat memory.
        let start = self.blocks[self.first[slice.span.0]].start;
        let within = |range: &Range<usize>| range.start - start..range.end - start;
        if self.states[blocks.clone()].iter().all(|state| *state == State::Old) {
            let range = self.blocks[blocks.start].start..self.blocks[blocks.end - 1].end;
            let values = &mut values[within(&range)];
            self.other[range.clone()].copy_from_slice(values);
            update(range, values);
            self.states[blocks].fill(State::Updated);
            return;
        }
        for block in blocks {
            let range = self.blocks[block].clone();
            let values = &mut values[within(&range)];
            match self.states[block] {
                State::Old => {
                    self.other[range.clone()].copy_from_slice(values);
                    update(range, values);
                }
                State::Reverted => self.other[range].swap_with_slice(values),
                State::Updated => {}
            }
            self.states[block] = State::Updated;
        }
    }

    /// Restores the values from before the step.
    pub fn revert(&mut self, values: &mut [f32]) {
        for (range, state) in self.blocks.iter().zip(&mut self.states) {
            if *state == State::Updated {
                self.other[range.clone()].swap_with_slice(&mut values[range.clone()]);
                *state = State::Reverted;
            }
        }
    }

    /// Ends the step: all of its updates are applied.
    pub fn commit(&mut self) {
        self.states.fill(State::Old);
    }

    /// Returns true if some blocks have been rolled back: then the optimizer's state is newer than the
    /// values.
    pub fn is_halfway(&self) -> bool {
        self.states.contains(&State::Reverted)
    }

    /// Returns what another rank needs besides the values to repeat the step: a 1 for each block that has
    /// been rolled back, and the blocks' new values.
    pub fn reverted(&mut self) -> (Vec<u8>, &mut [f32]) {
        (self.states.iter().map(|state| u8::from(*state == State::Reverted)).collect(), &mut self.other)
    }

    /// Takes over another rank's block states.
    pub fn take_over(&mut self, reverted: &[u8]) {
        let state = |reverted: &u8| if *reverted == 1 { State::Reverted } else { State::Old };
        self.states = reverted.iter().map(state).collect();
    }

    fn blocks_of(&self, slice: &Slice) -> Range<usize> {
        let SpanId(span) = slice.span;
        let first = self.first[span];
        first + slice.elements.start / BLOCK..first + slice.elements.end.div_ceil(BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::{Kind, ParamSpec};

    #[test]
    fn a_step_done_again_ends_where_the_first_one_would_have() {
        let spec = |name: &str, len: usize| ParamSpec::new(name, vec![len], Kind::Parameter { decay: false });
        let layout = Layout::new(vec![spec("a", 10), spec("b", 2 * BLOCK + 3), spec("none", 0)]);
        let start: Vec<f32> = (0..layout.len()).map(|i| i as f32).collect();
        let slice = |span, elements| Slice { span: SpanId(span), elements, offset: 0 };
        // Stands for the optimizer's state: each element may be updated once.
        let mut updates = vec![0; layout.len()];
        let mut update = |range: Range<usize>, values: &mut [f32]| {
            updates[range].iter_mut().for_each(|count| *count += 1);
            values.iter_mut().for_each(|value| *value *= 2.0);
        };
        let (mut undo, mut values) = (Undo::new(&layout), start.clone());
        let mut step = |undo: &mut Undo, values: &mut [f32], slice: Slice| {
            undo.update(&slice, &mut values[layout.span(slice.span).range()], &mut update);
        };
        step(&mut undo, &mut values, slice(1, BLOCK..2 * BLOCK));
        step(&mut undo, &mut values, slice(2, 0..0));
        undo.revert(&mut values);
        assert_eq!(values, start);
        // A second failure, after part of the step has been repeated with other slices.
        step(&mut undo, &mut values, slice(1, 0..2 * BLOCK));
        undo.revert(&mut values);
        assert_eq!(values, start);
        step(&mut undo, &mut values, slice(0, 0..10));
        step(&mut undo, &mut values, slice(1, 0..2 * BLOCK + 3));
        undo.commit();
        let doubled: Vec<f32> = start.iter().map(|x| 2.0 * x).collect();
        assert_eq!(values, doubled);
        assert!(updates.iter().all(|count| *count == 1));
    }
}
