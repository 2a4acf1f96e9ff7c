//! Cuts the gradients into buckets: at first in the order that is likely, then in the one in which they became ready.

use kolo_comm::Rank;

use super::working::Working;
use super::{BucketTiming, Reducer, sequence};
use crate::buckets::{plan, reversed};
use crate::error::Error;
use crate::layout::SpanId;
use crate::shard_sum::ShardSum;

impl Reducer {
    /// All ranks rebuild in the order that one of them saw.
    pub(super) fn rebuild_in(&mut self, mut order: Vec<SpanId>) -> Result<(), Error> {
        let mut seen = vec![false; self.layout.spans().len()];
        order.iter().for_each(|id| seen[id.0] = true);
        order.extend(reversed(&self.layout).into_iter().filter(|id| !seen[id.0]));
        let mut ids: Vec<i32> = order.iter().map(|id| id.0 as i32).collect();
        self.follow_witness(&mut ids)?;
        self.rebuild(&ids.into_iter().map(|id| SpanId(id as usize)).collect::<Vec<_>>())
    }

    /// Gives all ranks the numbers of one that has seen a backward pass. Rank 0 may have no shards, when there are
    /// more ranks than shards.
    pub(super) fn follow_witness(&self, numbers: &mut [i32]) -> Result<(), Error> {
        let ranks = 0..self.group.world_size();
        let witness = ranks.map(Rank).find(|&rank| !self.contributions.of(rank).is_empty());
        if self.synchronise {
            self.group.broadcast(numbers, witness.unwrap_or(Rank(0)))?;
        }
        Ok(())
    }

    pub(super) fn rebuild(&mut self, order: &[SpanId]) -> Result<(), Error> {
        self.buckets.clear();
        self.timings.clear();
        self.places.iter_mut().for_each(Vec::clear);
        for bucket in plan(&self.layout, order, self.caps) {
            for (number, slice) in bucket.slices.iter().enumerate() {
                self.places[slice.span.0].push((self.buckets.len(), number));
            }
            let sum = ShardSum::new(&self.group, bucket.len, self.shards.clone())?;
            self.timings.push(BucketTiming { bytes: bucket.len * size_of::<f32>(), seconds: 0.0 });
            self.buckets.push(Working::new(bucket, sum));
        }
        self.sequence = sequence::by_readiness(self.buckets.len());
        Ok(())
    }
}
