//! The backward pass of one shard, as a guard: gradients can be handed over only while the guard lives, and
//! only to the shard for which it was begun.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::replica::Replica;
use kolo_optim::SpanId;
use kolo_reduction::Error;

/// Access of a pass to its replica.
pub trait Access {
    /// Runs `work` on the replica.
    fn with<R>(&mut self, work: impl FnOnce(&mut Replica) -> R) -> R;
}

/// For a binding that has its gradients when the backward pass is over.
impl Access for &mut Replica {
    fn with<R>(&mut self, work: impl FnOnce(&mut Replica) -> R) -> R {
        work(self)
    }
}

/// For a binding whose hook runs inside the backward pass, where other code uses the replica, too.
impl Access for Arc<Mutex<Replica>> {
    fn with<R>(&mut self, work: impl FnOnce(&mut Replica) -> R) -> R {
        work(&mut lock(self))
    }
}

/// Locks state that a backward pass shares with the training loop. A panic elsewhere leaves it as it is.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The backward pass of one shard, from its beginning to [`ShardPass::finish`].
///
/// A pass that is dropped without `finish`, as by an error in the middle, leaves the shard incomplete. The
/// step cannot be completed then, and the next call returns an error.
#[must_use = "a pass that is not finished leaves its step incomplete"]
pub struct ShardPass<A: Access> {
    access: A,
    number: u64,
}

kolo_comm::opaque_debug!([A: Access] ShardPass<A> { number });

impl Replica {
    /// Begins the backward pass of this rank's next shard; `loss` is summed over `count` samples.
    ///
    /// # Errors
    ///
    /// Another pass is running, this rank has no more shards in this step, or the last step's reduction
    /// failed.
    pub fn begin_shard(&mut self, loss: f64, count: f64) -> Result<ShardPass<&mut Replica>, Error> {
        ShardPass::begin(self, loss, count)
    }
}

impl<A: Access> ShardPass<A> {
    /// Begins a pass as [`Replica::begin_shard`] does, with any [`Access`] to the replica. Fails as
    /// [`Replica::begin_shard`] does.
    pub fn begin(mut access: A, loss: f64, count: f64) -> Result<Self, Error> {
        let number = access.with(|replica| replica.begin_pass(loss, count))?;
        Ok(ShardPass { access, number })
    }

    /// Takes a contribution to a tensor's gradient. Contributions to the same tensor are added.
    ///
    /// # Panics
    ///
    /// If its length is not the tensor's.
    pub fn ready(&mut self, span: SpanId, gradient: &[f32]) {
        let number = self.number;
        self.access.with(|replica| replica.next_mut().step.add(number, span, gradient));
    }

    /// Runs `look` on the replica in the middle of the pass.
    pub fn with_replica<R>(&mut self, look: impl FnOnce(&mut Replica) -> R) -> R {
        self.access.with(look)
    }

    /// Ends the pass. A tensor without any contribution has a gradient of zero.
    ///
    /// # Errors
    ///
    /// The pass's step has been given up, as by [`Replica::regroup`].
    pub fn finish(mut self) -> Result<(), Error> {
        let number = self.number;
        self.access.with(|replica| replica.end_pass(number))
    }
}
