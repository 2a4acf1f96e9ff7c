//! What came late in a step: contributions to a span beyond the number that was expected, summed when all
//! passes are over.

use kolo_comm::Collective;

use super::Step;
use crate::error::Error;
use crate::shard_sum::ShardSum;
use crate::timed::timed;

impl Step {
    /// Adds what came beyond the expected number of uses.
    pub(super) fn add_late(&mut self) -> Result<(), Error> {
        let group = self.group.clone();
        let all = self.synchronise.then_some(&*group);
        for id in self.uses.exchange(all, &mut self.exposed)? {
            let late = self.uses.take_late(id, self.shards().len());
            let mut sum = self.sum_late(self.layout.span(id).len, late)?;
            for place in 0..self.buckets.places[id.0].len() {
                let (bucket, slice) = self.buckets.places[id.0][place];
                let (bucket, total) = self.collect(bucket)?;
                let slice = &bucket.slices[slice];
                let late = &sum.result()[slice.elements.clone()];
                total[slice.range()].iter_mut().zip(late).for_each(|(total, late)| *total += *late);
            }
        }
        Ok(())
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
