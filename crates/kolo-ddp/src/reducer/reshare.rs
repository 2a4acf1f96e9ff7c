//! Between two steps: shards go from rank to rank, and ranks tell how they are. The sum stays what it was, because its tree is
//! over the shards.

use std::sync::Arc;
use std::time::Duration;

use kolo_comm::Collective;
use kolo_comm::tree::Contributions;

use super::Reducer;
use crate::error::Error;
use crate::shard_sum::ShardSum;
use crate::shares;

impl Reducer {
    /// Divides the shards anew. All ranks call it alike, between [`Reducer::end_step`] and the next backward pass.
    ///
    /// A first small sum shows whether the algorithm that was asked for can add such shares. If it cannot, everything stays as it
    /// was on all ranks, and the reason is returned.
    ///
    /// # Errors
    ///
    /// A collective failed, or memory cannot be had.
    pub(crate) fn reshare(&mut self, shares: &[usize]) -> Result<Result<(), String>, Error> {
        let contributions = Arc::new(Contributions::of_shares(shares));
        let trial = self.group.alloc::<f32>(contributions.parts(self.group.rank()))?;
        let sum = Collective::TreeSum { contributions: contributions.clone(), len: 1 };
        match self.group.run(&sum, trial) {
            Ok(_) => {}
            Err(kolo_comm::Error::Invalid(reason)) => return Ok(Err(reason)),
            Err(error) => return Err(error.into()),
        }
        let shards = shares::range(shares, self.group.rank());
        let lens = self.buckets.iter().map(|working| working.bucket.len);
        let sums = lens.map(|len| ShardSum::new(&self.group, len, shards.clone()));
        let sums = sums.collect::<Result<Vec<_>, _>>()?;
        self.buckets.iter_mut().zip(sums).for_each(|(working, sum)| working.sum = sum);
        self.rehearsal.forget_ready();
        (self.contributions, self.shares, self.shards) = (contributions, shares.to_vec(), shards);
        Ok(Ok(()))
    }

    /// What this rank tells all others with the agreement of the step that is about to end; see [`Reducer::take_told`].
    pub(crate) fn tell(&mut self, numbers: Vec<f64>) {
        self.told.put(numbers);
    }

    /// What all ranks have told in the step whose [`Reducer::finish`] is over, in rank order.
    pub(crate) fn take_told(&mut self) -> Option<Vec<f64>> {
        self.told.take()
    }

    /// Whether steps are synchronised, so that all ranks draw the same conclusions.
    pub(crate) fn is_synchronised(&self) -> bool {
        self.synchronise
    }

    /// For each bucket of the last step the seconds from the start of this rank's last backward pass until its gradients were
    /// there; 0 for buckets that got none in it.
    pub fn ready_times(&self) -> &[f64] {
        self.rehearsal.ready()
    }

    /// This rank's thread has waited so long for communication that is none of the reducer's.
    pub(crate) fn add_exposed(&mut self, time: Duration) {
        self.exposed += time;
    }

    /// Time in which this rank's thread waited for communication since [`Reducer::take_timings`].
    pub fn exposed(&self) -> Duration {
        self.exposed
    }
}
