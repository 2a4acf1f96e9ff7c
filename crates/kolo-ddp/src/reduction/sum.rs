//! The sum over all shards, in the order of the tree: what training without workers would see.

use kolo_comm::{Buffer, Collective, Group, Pending, Timing};

use super::interface::{Context, FinishedShard, Reducer, Reduction};
use crate::error::Error;
use crate::shard_sum::ShardSum;
use crate::shares::Assignment;
use kolo_optim::table::Entry;

pub(super) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "sum",
    about: "the sum over all shards in tree order: exact",
    settings: &[],
    make: |_| Box::new(Exact),
};

/// Makes [`Sum`]s.
pub(crate) struct Exact;

impl Reducer for Exact {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn is_sum(&self) -> bool {
        true
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let len = context.bucket.len;
        let sum = ShardSum::new(context.group, len, context.assignment.shards.clone())?;
        Ok(Box::new(Sum { sum, len, pending: None }))
    }
}

/// One all-reduce of a bucket: 2·len elements a rank on the wire, or fewer, by the algorithm.
struct Sum {
    sum: ShardSum,
    len: usize,
    pending: Option<Pending<Buffer<f32>>>,
}

impl Reduction for Sum {
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool) {
        self.sum.put(offset, gradient, first);
    }

    fn add_nothing(&mut self, offset: usize, len: usize) {
        self.sum.put_zeros(offset, len);
    }

    fn end_shard(&mut self, shard: FinishedShard) {
        self.sum.end_shard(shard.number);
    }

    fn start(&mut self, group: Option<&Group>, assignment: &Assignment, _: u64) {
        match group {
            Some(group) => {
                let contributions = assignment.contributions.clone();
                let sum = Collective::TreeSum { contributions, len: self.len };
                self.pending = Some(group.start(sum, self.sum.take()));
            }
            None => self.sum.fold(),
        }
    }

    fn is_over(&mut self) -> bool {
        self.pending.as_mut().is_some_and(Pending::is_over)
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        let Some(pending) = self.pending.take() else {
            return if self.sum.is_away() { Err(Error::Lost) } else { Ok(None) };
        };
        let (buffer, timing) = pending.wait_timed()?;
        self.sum.give_back(buffer);
        Ok(Some(timing))
    }

    fn result(&mut self) -> &mut [f32] {
        self.sum.result()
    }

    fn reset(&mut self) {
        self.sum.reset();
    }
}
