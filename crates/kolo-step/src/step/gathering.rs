//! `Applying`, where each rank holds the optimizer's state of some blocks only: a bucket's owners step their
//! blocks of it, and send the new values to all ranks.
//!
//! All ranks call [`Step::gather`] for the buckets in the same order, in `Replica::step`. The messages travel
//! while the next forward pass runs, which waits for a bucket's values ([`Step::gathered`]) when it needs
//! them.

use super::Step;
use super::owned_bucket::{Gather, Room};
use crate::wait_time::timed_as;
use kolo_reduction::reduction::Reduction;
use kolo_reduction::{Bucket, Error, Slice};
use kolo_trace::What;

impl Step {
    /// Waits for a bucket; returns the slices of it that this rank steps, and its reduction, for a caller
    /// that reads each element of the reduced gradient once. Fails as [`Step::collect`] does.
    pub fn collect_own(&mut self, bucket: usize) -> Result<(&[Slice], &mut dyn Reduction), Error> {
        self.wait(bucket)?;
        Ok(self.buckets.states[bucket].own())
    }

    /// Starts to send this rank's new values of a bucket to all ranks, and to receive theirs. The slices of
    /// [`Step::collect_own`] have been stepped. All ranks call it for the same buckets in the same order.
    /// If gradients are divided, the values of earlier buckets may arrive meanwhile. Fails if memory runs
    /// out.
    pub fn gather(&mut self, bucket: usize, values: &mut [f32]) -> Result<(), Error> {
        let is_alone = !self.options.synchronize || self.ranks.group.world_size() == 1;
        if !is_alone {
            self.gather_starts(bucket, values);
        }
        let (owned, reduction) = self.buckets.states[bucket].owned();
        match owned {
            Some(owned) if is_alone => owned.gather = Gather::Nothing,
            Some(owned) => owned.start(&self.ranks.group, &self.layout, reduction, values)?,
            None => {}
        }
        Ok(())
    }

    /// Waits for the other ranks' new values of a bucket, and copies them to `values`. Returns the bucket.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), now or before.
    pub fn gathered(&mut self, bucket: usize, values: &mut [f32]) -> Result<&Bucket, Error> {
        self.buckets.in_flight.gathers.retain(|other| *other != bucket);
        if let Some(failure) = self.buckets.states[bucket].failure.take() {
            return Err(failure);
        }
        self.arrive(bucket, values)?;
        Ok(&self.buckets.states[bucket].bucket)
    }

    /// Waits for the other ranks' new values of a bucket, unless they are here, and copies them to `values`.
    pub(super) fn arrive(&mut self, bucket: usize, values: &mut [f32]) -> Result<(), Error> {
        let described = self.buckets.states[bucket].in_timeline();
        let before = self.times.exposed;
        let (owned, reduction) = self.buckets.states[bucket].owned();
        if let Some(owned) = owned {
            match std::mem::replace(&mut owned.gather, Gather::NotStarted) {
                Gather::NotStarted => return Err(Error::Lost),
                Gather::Nothing => {}
                Gather::UnderWay(pending, room) => {
                    let what = || What::WaitBucket(described);
                    let (buffer, ran) = timed_as(&mut self.times.exposed, what, || pending.wait_timed())?;
                    self.times.wire.add(ran);
                    owned.places(&self.layout, |message, place| {
                        values[place].copy_from_slice(&buffer[message]);
                    });
                    if let Room::Lent = room {
                        reduction.take_back(buffer);
                    }
                }
            }
            owned.gather = Gather::Nothing;
        }
        self.times.away += self.times.exposed.saturating_sub(before);
        Ok(())
    }
}
