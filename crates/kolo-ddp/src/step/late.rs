//! What came late in a step: contributions to a span beyond the number that was expected. When all passes are
//! over it is summed, or every shard keeps its own for the next step where that is the reduction's way.

use kolo_comm::Collective;

use super::Step;
use crate::buckets::Slice;
use crate::error::Error;
use crate::reduction::Reduction;
use crate::shard_sum::ShardSum;
use crate::timed::timed;
use kolo_optim::SpanId;

impl Step {
    /// Adds what came beyond the expected number of uses.
    pub(super) fn add_late(&mut self) -> Result<(), Error> {
        let group = self.group.clone();
        let all = self.synchronise.then_some(&*group);
        for id in self.uses.exchange(all, &mut self.exposed)? {
            let late = self.uses.take_late(id, self.shards().len());
            if self.keeps_late(id)? {
                self.keep_late(id, &late)?;
                continue;
            }
            let mut sum = self.sum_late(self.layout.span(id).len, late)?;
            for place in 0..self.buckets.places[id.0].len() {
                let (slice, reduction) = self.reduced_slice(id, place)?;
                reduction.add_late(slice.offset, &sum.result()[slice.elements.clone()]);
            }
        }
        Ok(())
    }

    /// Whether shards keep what came late for a span: for all of its slices or for none.
    fn keeps_late(&mut self, id: SpanId) -> Result<bool, Error> {
        if self.buckets.places[id.0].is_empty() {
            return Ok(false);
        }
        let (slice, reduction) = self.reduced_slice(id, 0)?;
        Ok(reduction.keeps_late(slice.offset))
    }

    /// This rank's shards keep what came late for a span.
    fn keep_late(&mut self, id: SpanId, late: &[Option<Vec<f32>>]) -> Result<(), Error> {
        for place in 0..self.buckets.places[id.0].len() {
            let (slice, reduction) = self.reduced_slice(id, place)?;
            for (own, gradient) in late.iter().enumerate() {
                if let Some(gradient) = gradient {
                    reduction.keep_late(own, slice.offset, &gradient[slice.elements.clone()]);
                }
            }
        }
        Ok(())
    }

    /// A slice of a span, and its bucket's reduction when it has been waited for.
    fn reduced_slice(&mut self, id: SpanId, place: usize) -> Result<(Slice, &mut dyn Reduction), Error> {
        let (bucket, slice) = self.buckets.places[id.0][place];
        let (bucket, reduction) = self.collect_once(bucket)?;
        Ok((bucket.slices[slice].clone(), reduction))
    }

    /// The sum over all shards of `len` elements, of which this rank has those of its shards, `None` where
    /// there are none.
    fn sum_late(&mut self, len: usize, late: Vec<Option<Vec<f32>>>) -> Result<ShardSum, Error> {
        let mut sum = ShardSum::new(&self.group, len, self.shards())?;
        for (shard, late) in self.shards().zip(late) {
            match late {
                Some(gradient) => sum.put(0, &gradient, true),
                None => sum.put_zeros(0, len),
            }
            sum.end_shard(shard);
        }
        if self.synchronise {
            let contributions = self.assignment.contributions.clone();
            let collective = Collective::TreeSum { contributions, len };
            let buffer =
                timed(&mut self.exposed, "late gradients", || self.group.run(&collective, sum.take()))?;
            sum.give_back(buffer);
        } else {
            sum.fold();
        }
        Ok(sum)
    }
}
