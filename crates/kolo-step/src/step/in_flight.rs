//! Bound of the buckets in flight, where a rank keeps its own parts of the gradients' sum.
//!
//! A bucket's buffer is needed from its first gradient until its sum has gone to the owners, and again while
//! its new values travel. On a slow wire buckets would queue, and with them the memory of the whole gradient.
//! So at most [`IN_FLIGHT`] sums are on their way, and as many exchanges of values, but together one more;
//! then a rank waits for the oldest. All ranks start them in the same order, so a rank waits only for those
//! that have started fewer.

use super::{Phase, Step};
use kolo_reduction::Error;

/// Sums, or exchanges of new values, that are on their way at once. One more bucket collects gradients
/// meanwhile.
pub const IN_FLIGHT: usize = 2;

/// Size of buckets where the job gives none, in MiB: [`IN_FLIGHT`] and one more of them are in memory besides
/// a rank's own parts.
pub const DIVIDED_BUCKET_MIB: f64 = 4.0;

impl Step {
    /// Returns true if a rank keeps only its own parts of the gradients' sum.
    pub fn divides_gradients(&self) -> bool {
        self.ranks.division.as_ref().is_some_and(|division| division.memory.is_some())
    }

    /// Returns the most bytes of gradient buffers at once since the last call; `None` if each rank has
    /// buffers for all gradients.
    pub fn take_gradient_peak(&mut self) -> Option<usize> {
        Some(self.ranks.division.as_ref()?.memory.as_ref()?.take_peak())
    }

    /// Declares that passes of this step meet those of other ranks, so none may wait for a sum that another
    /// rank starts when its passes are over. Then nothing bounds the sums on their way.
    pub fn never_wait_in_passes(&mut self) {
        self.options.waits_in_passes = false;
    }

    /// Notes that a bucket's sum has been started, and makes room for the next one.
    pub(super) fn sum_started(&mut self, bucket: usize) {
        if !self.divides_gradients() {
            return;
        }
        let waits = self.options.waits_in_passes || !matches!(self.phase, Phase::Collecting { .. });
        self.buckets.in_flight.sums.push_back(bucket);
        self.keep_sums(if waits { IN_FLIGHT } else { usize::MAX });
    }

    /// Frees the buckets whose sums are over; waits for the oldest ones until at most `most` are on their
    /// way. A failure is kept until somebody waits for that bucket.
    fn keep_sums(&mut self, most: usize) {
        while let Some(&oldest) = self.buckets.in_flight.sums.front() {
            let is_many = self.buckets.in_flight.sums.len() > most;
            if !is_many && !self.buckets.states[oldest].is_back() {
                break;
            }
            self.buckets.in_flight.sums.pop_front();
            self.buckets.states[oldest].wait_and_keep_failure(&mut self.times);
        }
    }

    /// Makes room for the exchange of a bucket's new values: waits for the oldest ones, and for sums that
    /// would be one bucket too many with them. A failure is kept until somebody waits for that bucket, so
    /// that a rank steps all of its parts or none.
    pub(super) fn gather_starts(&mut self, bucket: usize, values: &mut [f32]) {
        if !self.divides_gradients() {
            return;
        }
        self.buckets.in_flight.gathers.push_back(bucket);
        while self.buckets.in_flight.gathers.len() > IN_FLIGHT {
            if let Some(oldest) = self.buckets.in_flight.gathers.pop_front() {
                self.buckets.states[oldest].failure = self.arrive(oldest, values).err();
            }
        }
        self.keep_sums(IN_FLIGHT + 1 - self.buckets.in_flight.gathers.len());
    }

    /// Sets each number to its sum over all ranks, where each of them has looked at its own parts of the
    /// gradient: a number that is not 0 on at most one rank, so that no order of addition matters. Fails if a
    /// collective fails (naming the rank).
    pub fn merge_partial_sums(&mut self, numbers: &mut [&mut [f64]]) -> Result<(), Error> {
        if !self.options.synchronize || numbers.is_empty() {
            return Ok(());
        }
        let mut all = numbers.concat();
        let group = self.ranks.group.clone();
        let merge = || group.all_reduce(&mut all, kolo_comm::Op::Sum);
        crate::wait_time::timed(&mut self.times.exposed, "the others' parts of the gradient", merge)?;
        let mut rest = &all[..];
        for own in numbers {
            let (first, others) = rest.split_at(own.len());
            own.copy_from_slice(first);
            rest = others;
        }
        Ok(())
    }
}
