//! The sum over all shards, in the order of the tree: the gradient of a training without workers.

use std::ops::Range;

use kolo_comm::schedule::WireCost;
use kolo_comm::tree::Contributions;
use kolo_comm::{Buffer, Collective, Deferred, DeferredSum, Group, Pending, SumParts, Timing};

use super::interface::{Context, FinishedShard, ReadyStep, Reducer, Reduction};
use crate::error::Error;
use crate::shard_sum::ShardSum;
use kolo_optim::table::Entry;
use kolo_sampler::Assignment;

pub(super) const ENTRY: Entry<dyn Reducer> = Entry {
    name: "sum",
    about: "the sum over all shards in tree order: exact",
    settings: &[],
    make: |_| Box::new(Exact),
};

pub(crate) struct Exact;

impl Reducer for Exact {
    fn wire_cost(&self) -> Option<WireCost> {
        Some(WireCost::SUM)
    }

    fn name(&self) -> &str {
        ENTRY.name
    }

    fn is_sum(&self) -> bool {
        true
    }

    fn safe_below(&self) -> f32 {
        1.0e18
    }

    fn build(&self, context: &Context<'_>) -> Result<Box<dyn Reduction>, Error> {
        let len = context.bucket.len;
        let sum = ShardSum::new(context.group, len, context.assignment.shards.clone())?;
        Ok(Box::new(Sum {
            sum,
            len,
            is_of_pair: is_of_pair(&context.assignment.contributions),
            is_read_once: false,
            was_deferred: false,
            under_way: None,
            deferred: None,
            announced: None,
        }))
    }
}

/// One all-reduce of a bucket: 2·len elements a rank on the wire, or fewer, depending on the algorithm; half as
/// many if each element has one reader. If
/// ranks can read each other's memory and the result is read once, nothing is reduced: the reader adds.
struct Sum {
    sum: ShardSum,
    len: usize,
    /// True if adding the contributions when their sum is read moves less memory.
    is_of_pair: bool,
    is_read_once: bool,
    /// True if the last sum was added when it was read, as the next one will be if nothing changes.
    was_deferred: bool,
    under_way: Option<Pending<Buffer<f32>>>,
    /// A sum that its reader still has to add.
    deferred: Option<DeferredSum<f32>>,
    /// Time in which the ranks announced the deferred sum, until a query takes it.
    announced: Option<Timing>,
}

impl Reduction for Sum {
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool) {
        match first && self.was_deferred {
            // Not read before the next forward pass.
            true => self.sum.put_for_later(offset, gradient),
            false => self.sum.put(offset, gradient, first),
        }
    }

    fn add_nothing(&mut self, offset: usize, len: usize) {
        self.sum.put_zeros(offset, len);
    }

    fn end_shard(&mut self, shard: FinishedShard) {
        self.sum.end_shard(shard.number);
    }

    fn start(&mut self, group: Option<&Group>, assignment: &Assignment, step: &ReadyStep) {
        match group {
            Some(group) => {
                let SumParts { contributions, len, buffer } = self.parts(assignment);
                self.was_deferred = false;
                let sum = Collective::TreeSum { contributions, len, readers: step.readers.clone() };
                self.under_way = Some(group.start(sum, buffer));
            }
            None => self.sum.fold(),
        }
    }

    fn is_deferred(&self) -> bool {
        self.is_read_once && self.is_of_pair
    }

    fn defer(&mut self, assignment: &Assignment) -> Option<SumParts<f32>> {
        self.was_deferred = self.is_deferred();
        self.was_deferred.then(|| self.parts(assignment))
    }

    fn deferred(&mut self, (sum, buffer): Deferred<f32>, announced: Timing) {
        self.sum.give_back(buffer);
        (self.deferred, self.announced) = (Some(sum), Some(announced));
    }

    fn is_over(&mut self) -> bool {
        self.announced.is_some() || self.under_way.as_mut().is_some_and(Pending::is_over)
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        match self.under_way.take() {
            Some(pending) => {
                let (buffer, timing) = pending.wait_timed()?;
                self.sum.give_back(buffer);
                Ok(Some(timing))
            }
            None if self.sum.is_away() => Err(Error::Lost),
            None => Ok(self.announced.take()),
        }
    }

    fn result(&mut self) -> &mut [f32] {
        let result = self.sum.result();
        if let Some(mut deferred) = self.deferred.take() {
            deferred.add_into(0..self.len, result);
        }
        result
    }

    fn read_once<'a>(&'a mut self, elements: Range<usize>, room: &'a mut [f32]) -> &'a [f32] {
        match &mut self.deferred {
            Some(deferred) => {
                deferred.add_into(elements, room);
                room
            }
            None => &self.sum.result()[elements],
        }
    }

    fn will_be_read_once(&mut self) {
        self.is_read_once = true;
    }

    fn lend(&mut self) -> Option<Buffer<f32>> {
        (self.sum.size() == self.len).then(|| self.sum.take())
    }

    fn take_back(&mut self, buffer: Buffer<f32>) {
        self.sum.give_back(buffer);
    }

    fn reset(&mut self) {
        (self.deferred, self.announced) = (None, None);
        self.sum.reset();
    }
}

impl Sum {
    /// Returns this rank's part of a sum over the shards of all ranks.
    fn parts(&mut self, assignment: &Assignment) -> SumParts<f32> {
        let contributions = assignment.contributions.clone();
        SumParts { contributions, len: self.len, buffer: self.sum.take() }
    }
}

/// Returns true if these are the contributions of two ranks, one each. Each rank reads both when the sum is
/// read, while an all-reduce reads and writes three and a half times the size of one of them. From four
/// ranks on the all-reduce moves less memory.
fn is_of_pair(contributions: &Contributions) -> bool {
    contributions.sources().len() == 2 && !contributions.has_servers()
}
