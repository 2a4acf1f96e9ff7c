//! Late contributions in a step: those to a span beyond the expected number. When all passes are over they
//! are summed, or every shard keeps its own for the next step, depending on the reduction.

use kolo_comm::Collective;

use super::Step;
use crate::wait_time::timed;
use kolo_optim::SpanId;
use kolo_reduction::reduction::Reduction;
use kolo_reduction::{Error, ShardSum, Slice};

impl Step {
    /// Adds the contributions beyond the expected number of uses.
    pub(super) fn add_late(&mut self) -> Result<(), Error> {
        let group = self.ranks.group.clone();
        let all = self.options.synchronize.then_some(&*group);
        for id in self.uses.exchange(all, &mut self.times.exposed)? {
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

    /// Returns true if shards keep the late contributions to a span: for all of its slices or for none.
    fn keeps_late(&mut self, id: SpanId) -> Result<bool, Error> {
        if self.buckets.places[id.0].is_empty() {
            return Ok(false);
        }
        let (slice, reduction) = self.reduced_slice(id, 0)?;
        Ok(reduction.keeps_late(slice.offset))
    }

    /// Keeps the late contributions to a span for each of this rank's shards.
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

    /// Waits for the bucket of a slice of a span; returns the slice and the bucket's reduction.
    fn reduced_slice(&mut self, id: SpanId, place: usize) -> Result<(Slice, &mut dyn Reduction), Error> {
        let (bucket, slice) = self.buckets.places[id.0][place];
        let (bucket, reduction) = self.collect_once(bucket)?;
        Ok((bucket.slices[slice].clone(), reduction))
    }

    /// Sums `len` elements over all shards. `late` has those of this rank's shards, `None` for a shard
    /// without any.
    fn sum_late(&mut self, len: usize, late: Vec<Option<Vec<f32>>>) -> Result<ShardSum, Error> {
        let mut sum = ShardSum::new(&self.ranks.group, len, self.shards())?;
        for (shard, late) in self.shards().zip(late) {
            match late {
                Some(gradient) => sum.put(0, &gradient, true),
                None => sum.put_zeros(0, len),
            }
            sum.end_shard(shard);
        }
        if self.options.synchronize {
            let contributions = self.ranks.assignment.contributions.clone();
            let collective = Collective::tree_sum(contributions, len);
            let buffer = timed(&mut self.times.exposed, "late gradients", || {
                self.ranks.group.run(&collective, sum.take())
            })?;
            sum.give_back(buffer);
        } else {
            sum.fold();
        }
        Ok(sum)
    }
}
