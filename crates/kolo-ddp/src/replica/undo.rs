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

use kolo_optim::{Layout, SpanId};
use kolo_reduction::{BLOCK, Slice};

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
pub(crate) struct Undo {
    /// For each element of flat memory, the version that is not in the model.
    other: Vec<f32>,
    /// Number of each span's first block.
    first: Vec<usize>,
    /// Elements of flat memory in each block.
    blocks: Vec<Range<usize>>,
    states: Vec<State>,
}

impl Undo {
    pub(crate) fn new(layout: &Layout) -> Self {
        let (mut first, mut blocks) = (Vec::new(), Vec::new());
        for span in layout.spans() {
            first.push(blocks.len());
            let starts = (0..span.len).step_by(BLOCK);
            blocks.extend(starts.map(|start| span.offset + start..span.offset + span.len.min(start + BLOCK)));
        }
        Undo { other: vec![0.0; layout.len()], states: vec![State::Old; blocks.len()], first, blocks }
    }

    /// Runs `update` on the elements of a slice that are not updated yet.
    pub(crate) fn update(
        &mut self,
        slice: &Slice,
        values: &mut [f32],
        mut update: impl FnMut(Range<usize>, &mut [f32]),
    ) {
        let blocks = self.blocks_of(slice);
        if blocks.is_empty() {
            return;
        }
        if self.states[blocks.clone()].iter().all(|state| *state == State::Old) {
            let range = self.blocks[blocks.start].start..self.blocks[blocks.end - 1].end;
            self.other[range.clone()].copy_from_slice(&values[range.clone()]);
            update(range.clone(), &mut values[range]);
            self.states[blocks].fill(State::Updated);
            return;
        }
        for block in blocks {
            let range = self.blocks[block].clone();
            match self.states[block] {
                State::Old => {
                    self.other[range.clone()].copy_from_slice(&values[range.clone()]);
                    update(range.clone(), &mut values[range]);
                }
                State::Reverted => self.other[range.clone()].swap_with_slice(&mut values[range]),
                State::Updated => {}
            }
            self.states[block] = State::Updated;
        }
    }

    /// Restores the values from before the step.
    pub(crate) fn revert(&mut self, values: &mut [f32]) {
        for (range, state) in self.blocks.iter().zip(&mut self.states) {
            if *state == State::Updated {
                self.other[range.clone()].swap_with_slice(&mut values[range.clone()]);
                *state = State::Reverted;
            }
        }
    }

    /// Ends the step: all of its updates are applied.
    pub(crate) fn commit(&mut self) {
        self.states.fill(State::Old);
    }

    /// Returns true if some blocks have been rolled back: then the optimizer's state is newer than the
    /// values.
    pub(crate) fn is_halfway(&self) -> bool {
        self.states.contains(&State::Reverted)
    }

    /// Returns what another rank needs besides the values to repeat the step: a 1 for each block that has
    /// been rolled back, and the blocks' new values.
    pub(crate) fn reverted(&mut self) -> (Vec<u8>, &mut [f32]) {
        (self.states.iter().map(|state| u8::from(*state == State::Reverted)).collect(), &mut self.other)
    }

    /// Takes over another rank's block states.
    pub(crate) fn take_over(&mut self, reverted: &[u8]) {
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
    use std::sync::Arc;

    use kolo_comm::Group;

    use super::*;
    use crate::{Config, Replica};
    use kolo_optim::table::Entry;
    use kolo_optim::{Kind, ParamSpec};
    use kolo_optim::{OPTIMIZERS, Optimizer, Settings};
    use kolo_reduction::BucketCaps;

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
        undo.update(&slice(1, BLOCK..2 * BLOCK), &mut values, &mut update);
        undo.update(&slice(2, 0..0), &mut values, &mut update);
        undo.revert(&mut values);
        assert_eq!(values, start);
        // A second failure, after part of the step has been repeated with other slices.
        undo.update(&slice(1, 0..2 * BLOCK), &mut values, &mut update);
        undo.revert(&mut values);
        assert_eq!(values, start);
        undo.update(&slice(0, 0..10), &mut values, &mut update);
        undo.update(&slice(1, 0..2 * BLOCK + 3), &mut values, &mut update);
        undo.commit();
        let doubled: Vec<f32> = start.iter().map(|x| 2.0 * x).collect();
        assert_eq!(values, doubled);
        assert!(updates.iter().all(|count| *count == 1));
    }

    /// Runs a step of two shards whose gradients are multiples of the values. Every second step, such as the
    /// eighth, uses the last tensor twice, which the step before has not shown.
    fn step(replica: &mut Replica) {
        let number = replica.steps() + 1;
        let values = replica.values().unwrap().to_vec();
        let layout = replica.layout().clone();
        for shard in replica.shards() {
            let mut pass = replica.begin_shard(1.0, 2.0).unwrap();
            for (n, span) in layout.spans().iter().enumerate().rev() {
                let times = |factor: f32| values[span.range()].iter().map(|x| x * factor).collect::<Vec<_>>();
                pass.ready(SpanId(n), &times(number as f32 + shard as f32 / 3.0));
                if n + 1 == layout.spans().len() && number.is_multiple_of(2) {
                    pass.ready(SpanId(n), &times(0.7 + shard as f32 / 7.0));
                }
            }
            pass.finish().unwrap();
        }
        replica.step(0.05).unwrap();
    }

    /// Returns the bits of the values after ten steps of a model with a tensor that travels in three
    /// buckets. With `fails`, a reduction of the eighth step fails after the next forward pass has read that
    /// many of the four tensors.
    fn train(optimizer: &Entry<dyn Optimizer>, fails: Option<usize>) -> Vec<u32> {
        const LENS: [usize; 4] = [10, 2 * BLOCK + 3, 300, 20];
        let spec = |(n, len): (usize, &usize)| {
            ParamSpec::new(
                n.to_string(),
                vec![*len],
                if n == 3 { Kind::Statistic } else { Kind::Parameter { decay: n == 1 } },
            )
        };
        let specs = LENS.iter().enumerate().map(spec).collect();
        let values = (0..LENS.iter().sum()).map(|i: usize| (i as f32 * 0.37).sin()).collect();
        let config = Config { shards: Some(2), caps: Some(BucketCaps::of_mib(0.01)), ..Config::default() };
        let optimizer = optimizer.build(&Settings::default()).unwrap();
        let group = || Arc::new(Group::alone());
        let mut replica = Replica::new(group(), specs, values, &config, optimizer).unwrap();
        replica.core.weights.undo = Some(Undo::new(replica.layout()));
        (0..8).for_each(|_| step(&mut replica));
        if let Some(asked) = fails {
            (0..asked).for_each(|n| drop(replica.latest(SpanId(n)).to_vec()));
            // What a replica does if missing updates can no longer be applied.
            let core = &mut replica.core;
            if core.step.give_up() {
                core.progress.steps -= 1;
                core.weights.undo.as_mut().unwrap().revert(&mut core.weights.values);
            }
            // The last two tensors share a bucket.
            assert_eq!(replica.is_halfway(), asked == 1 || asked == 2, "{asked} tensors");
            replica.join(group()).unwrap();
        }
        while replica.steps() < 10 {
            step(&mut replica);
        }
        replica.values().unwrap().iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn a_step_that_fails_halfway_does_not_change_the_bits() {
        for optimizer in OPTIMIZERS {
            let expected = train(optimizer, None);
            for asked in 0..=4 {
                assert!(train(optimizer, Some(asked)) == expected, "{optimizer:?}, {asked} tensors");
            }
        }
    }
}
