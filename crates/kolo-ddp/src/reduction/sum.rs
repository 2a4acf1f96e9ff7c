//! The sum over all shards, in the order of the tree: what training without workers would see.

use std::ops::Range;

use kolo_comm::tree::Contributions;
use kolo_comm::{Buffer, Collective, DeferredSum, Group, Pending, Timing};

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
        Ok(Box::new(Sum {
            sum,
            len,
            is_read_once: false,
            was_deferred: false,
            under_way: None,
            deferred: None,
        }))
    }
}

/// One all-reduce of a bucket: 2·len elements a rank on the wire, or fewer, by the algorithm. Where ranks
/// can read each other's memory and the result is read once, nothing is reduced: whoever reads adds.
struct Sum {
    sum: ShardSum,
    len: usize,
    is_read_once: bool,
    /// Whether the last sum was added when it was read, as the next one will be if nothing changes.
    was_deferred: bool,
    under_way: Option<UnderWay>,
    /// What is still to be added by whoever reads it.
    deferred: Option<DeferredSum<f32>>,
}

/// What the other ranks are waited for.
enum UnderWay {
    Sum(Pending<Buffer<f32>>),
    Deferred(Pending<(DeferredSum<f32>, Buffer<f32>)>),
}

/// Contributions of a sum that is added when it is read: of two ranks with one each. Each rank reads both
/// then, where an all-reduce reads and writes three and a half times as much as one of them has; from four
/// ranks on the all-reduce moves less.
const DEFERRED: usize = 2;

impl Reduction for Sum {
    fn add(&mut self, offset: usize, gradient: &[f32], first: bool) {
        match first && self.was_deferred {
            // Nobody reads it before the next forward pass.
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

    fn start(&mut self, group: Option<&Group>, assignment: &Assignment, _: u64) {
        match group {
            Some(group) => {
                let contributions = assignment.contributions.clone();
                let (buffer, len) = (self.sum.take(), self.len);
                self.was_deferred = self.is_read_once && defers(&contributions);
                self.under_way = Some(match self.was_deferred {
                    true => UnderWay::Deferred(group.start_deferred_sum(contributions, len, buffer)),
                    false => UnderWay::Sum(group.start(Collective::TreeSum { contributions, len }, buffer)),
                });
            }
            None => self.sum.fold(),
        }
    }

    fn is_over(&mut self) -> bool {
        match &mut self.under_way {
            Some(UnderWay::Sum(pending)) => pending.is_over(),
            Some(UnderWay::Deferred(pending)) => pending.is_over(),
            None => false,
        }
    }

    fn wait(&mut self) -> Result<Option<Timing>, Error> {
        let (buffer, timing) = match self.under_way.take() {
            Some(UnderWay::Sum(pending)) => pending.wait_timed()?,
            Some(UnderWay::Deferred(pending)) => {
                let ((deferred, buffer), timing) = pending.wait_timed()?;
                self.deferred = Some(deferred);
                (buffer, timing)
            }
            None => return if self.sum.is_away() { Err(Error::Lost) } else { Ok(None) },
        };
        self.sum.give_back(buffer);
        Ok(Some(timing))
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

    fn reset(&mut self) {
        self.deferred = None;
        self.sum.reset();
    }
}

/// Whether it moves less memory to add these contributions when their sum is read.
fn defers(contributions: &Contributions) -> bool {
    contributions.sources().len() == DEFERRED && !contributions.has_servers()
}
