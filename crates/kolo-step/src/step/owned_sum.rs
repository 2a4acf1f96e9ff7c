//! The sum over all shards, of which a rank keeps its own parts: stage 2 of Rajbhandari et al. 2020, "ZeRO".
//!
//! A bucket's buffer lives from its first gradient until its sum has gone to the owners. Then a rank keeps
//! the elements that it steps, in memory of its own. If a rank has several shards, the buffer lives from the
//! first of them on: the tree adds a rank's shards before those of others.

use std::ops::Range;
use std::sync::Arc;

use kolo_comm::{Buffer, Collective, Group, Pending, Timing};

use crate::gradient_memory::{GradientMemory, Held};
use kolo_reduction::reduction::{FinishedShard, ReadyStep, Reduction};
use kolo_reduction::{Error, ShardSum};
use kolo_sampler::Assignment;

/// One sum of a bucket, to its owners.
pub(super) struct OwnedSum {
    group: Arc<Group>,
    /// Elements of the bucket.
    len: usize,
    /// This rank's shards.
    shards: Range<usize>,
    /// Ranges of the bucket that this rank keeps, ascending.
    own: Vec<Range<usize>>,
    memory: Arc<GradientMemory>,
    /// This rank's elements of the sum, one behind the other. Their memory stays from step to step: allocated
    /// anew among the tensors of each pass, it would leave gaps between them that nothing fits.
    kept: Vec<f32>,
    _held: Held,
    state: State,
    /// Lack of memory, until a wait returns it.
    failed: Option<Error>,
}

enum State {
    /// No gradient has come in this step.
    Empty,
    Collecting(ShardSum, Held),
    Reducing(Pending<Buffer<f32>>, Held),
    /// The sum has been waited for, and this rank's elements are kept.
    Kept,
    /// These have been read for the last time.
    Used,
}

impl OwnedSum {
    pub(super) fn new(
        group: Arc<Group>,
        len: usize,
        shards: Range<usize>,
        own: Vec<Range<usize>>,
        memory: Arc<GradientMemory>,
    ) -> Self {
        let elements = own.iter().map(Range::len).sum();
        let _held = memory.hold(elements * size_of::<f32>());
        let kept = Vec::with_capacity(elements);
        OwnedSum { group, len, shards, own, memory, kept, _held, state: State::Empty, failed: None }
    }

    /// The sum of this rank's shards; `None` if there is no memory for it.
    fn collecting(&mut self) -> Option<&mut ShardSum> {
        if let State::Empty = self.state
            && self.failed.is_none()
        {
            match ShardSum::unspecified(&self.group, self.len, self.shards.clone()) {
                Ok(sum) => {
                    let held = self.memory.hold(sum.size() * size_of::<f32>());
                    self.state = State::Collecting(sum, held);
                }
                Err(error) => self.failed = Some(error.into()),
            }
        }
        match &mut self.state {
            State::Collecting(sum, _) => Some(sum),
            _ => None,
        }
    }

    /// Copies this rank's elements of the sum.
    fn keep(&mut self, sum: &[f32]) {
        self.kept.clear();
        self.own.iter().for_each(|own| self.kept.extend_from_slice(&sum[own.clone()]));
        self.state = State::Kept;
    }
}

impl Reduction for OwnedSum {
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool) {
        if let Some(sum) = self.collecting() {
            sum.put(offset, gradient, first);
        }
    }

    fn add_nothing(&mut self, offset: usize, len: usize) {
        if let Some(sum) = self.collecting() {
            sum.put_zeros(offset, len);
        }
    }

    fn end_shard(&mut self, shard: FinishedShard) {
        if let Some(sum) = self.collecting() {
            sum.end_shard(shard.number);
        }
    }

    fn start(&mut self, group: Option<&Group>, assignment: &Assignment, step: &ReadyStep) {
        self.collecting();
        match (std::mem::replace(&mut self.state, State::Empty), group) {
            (State::Collecting(mut sum, held), Some(group)) => {
                let (contributions, readers) = (assignment.contributions.clone(), step.readers.clone());
                let collective = Collective::TreeSum { contributions, len: self.len, readers };
                self.state = State::Reducing(group.start(collective, sum.take()), held);
            }
            (State::Collecting(mut sum, _held), None) => {
                sum.fold();
                self.keep(sum.result());
            }
            (state, _) => self.state = state,
        }
    }

    fn is_over(&mut self) -> bool {
        match &mut self.state {
            State::Reducing(pending, _) => pending.is_over(),
            _ => false,
        }
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match std::mem::replace(&mut self.state, State::Empty) {
            State::Reducing(pending, _held) => {
                let (buffer, timing) = pending.wait_timed()?;
                self.keep(&buffer[..self.len]);
                Ok(Some(timing))
            }
            state @ (State::Kept | State::Used) => {
                self.state = state;
                Ok(None)
            }
            State::Empty | State::Collecting(..) => Err(Error::Lost),
        }
    }

    /// This rank's elements only, one behind the other.
    fn result(&mut self) -> &mut [f32] {
        match &mut self.state {
            State::Kept => &mut self.kept,
            _ => &mut [],
        }
    }

    fn add_late(&mut self, offset: usize, sum: &[f32]) {
        let State::Kept = self.state else { return };
        let mut place = 0;
        for own in &self.own {
            let (start, end) = (own.start.max(offset), own.end.min(offset + sum.len()));
            if start < end {
                let kept = &mut self.kept[place + (start - own.start)..][..end - start];
                let late = &sum[start - offset..end - offset];
                kept.iter_mut().zip(late).for_each(|(sum, late)| *sum += late);
            }
            place += own.len();
        }
    }

    /// Gives up the sum: nothing of it can be lent for a whole bucket.
    fn lend(&mut self) -> Option<Buffer<f32>> {
        if let State::Kept = self.state {
            self.state = State::Used;
        }
        None
    }

    fn reset(&mut self) {
        (self.state, self.failed) = (State::Empty, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_comm::{Rank, Readers};
    use kolo_reduction::reduction::SampleCount;

    /// Against sums in plain lines: two shards, a tensor of which one shard has nothing, and a late gradient.
    #[test]
    fn a_rank_keeps_its_own_elements_of_the_sum() {
        let (group, memory) = (Arc::new(Group::alone()), Arc::new(GradientMemory::default()));
        let assignment = Assignment::new(&[2], Rank(0));
        let mut sum = OwnedSum::new(group, 10, 0..2, vec![1..3, 6..9], memory.clone());
        for step in 0..2 {
            for shard in 0..2 {
                let gradient: Vec<f32> = (0..6).map(|i| (10 * shard + i) as f32).collect();
                sum.add(0, &gradient, true);
                sum.add(0, &gradient, false);
                if shard == 0 {
                    sum.add(6, &[f32::NAN, 0.5, f32::INFINITY, 0.25], true);
                } else {
                    sum.add_nothing(6, 4);
                }
                sum.end_shard(FinishedShard { number: shard, step, count: 1.0 });
            }
            let ready = ReadyStep { number: step, samples: SampleCount::default(), readers: Readers::All };
            sum.start(None, &assignment, &ready);
            sum.wait().unwrap();
            sum.add_late(2, &[100.0; 5]);
            let (kept, expected) = (sum.result(), [24.0, 128.0, f32::NAN, 0.5, f32::INFINITY]);
            assert!(kept[2].is_nan() && kept.len() == 5, "{kept:?}");
            for place in [0, 1, 3, 4] {
                assert_eq!(kept[place], expected[place]);
            }
            // Two sums of ten elements, and what is kept, also between steps.
            assert_eq!(memory.take_peak(), 4 * (20 + 5));
            assert!(sum.lend().is_none() && sum.wait().unwrap().is_none());
            assert!(sum.result().is_empty());
            assert_eq!(memory.take_peak(), 4 * 5);
            sum.reset();
        }
        assert!(matches!(sum.wait(), Err(Error::Lost)));
    }
}
