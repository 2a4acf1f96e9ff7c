//! A bucket at work.

use std::sync::Arc;
use std::time::Duration;

use kolo_comm::tree::Contributions;
use kolo_comm::{Collective, Group, Pending};

use super::{BucketTiming, timed};
use crate::buckets::Bucket;
use crate::error::Error;
use crate::shard_sum::ShardSum;

/// See the module's text.
pub(super) struct Working {
    pub(super) bucket: Bucket,
    pub(super) sum: ShardSum,
    /// Contributions that the current shard still owes.
    pub(super) missing: u32,
    /// Whether its reduction has been started in this step.
    pub(super) started: bool,
    pub(super) pending: Option<Pending<f32>>,
}

impl Working {
    pub(super) fn new(bucket: Bucket, sum: ShardSum) -> Self {
        Working { bucket, sum, missing: 0, started: false, pending: None }
    }

    /// Zeros for spans without a gradient, then the shard joins the others.
    pub(super) fn complete_shard(&mut self, uses: &[u32], shard: usize) {
        for slice in &self.bucket.slices {
            if uses[slice.span.0] == 0 {
                self.sum.put_zeros(slice.offset, slice.elements.len());
            }
        }
        self.sum.end_shard(shard);
    }

    /// Starts the reduction; without `contributions` only this rank's shards are summed.
    pub(super) fn start(&mut self, group: &Group, contributions: Option<&Arc<Contributions>>) {
        self.started = true;
        match contributions {
            Some(contributions) => {
                let sum = Collective::TreeSum { contributions: contributions.clone(), len: self.bucket.len };
                self.pending = Some(group.start(sum, self.sum.take()));
            }
            None => self.sum.fold(),
        }
    }

    /// Waits until the bucket is back. Says how long it was away, unless it was back already.
    pub(super) fn collect(&mut self, exposed: &mut Duration) -> Result<Option<BucketTiming>, Error> {
        let Some(pending) = self.pending.take() else {
            return if self.sum.is_away() { Err(Error::Lost) } else { Ok(None) };
        };
        let (buffer, timing) = timed(exposed, || pending.wait_timed())?;
        self.sum.give_back(buffer);
        let (bytes, seconds) =
            (self.bucket.len * size_of::<f32>(), (timing.ended - timing.started).as_secs_f64());
        Ok(Some(BucketTiming { bytes, seconds }))
    }

    pub(super) fn reset(&mut self) {
        self.started = false;
        self.sum.reset();
    }
}
