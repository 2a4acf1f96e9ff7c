//! Where a replica stands in its job: what a training loop asks for between two steps.

use kolo_comm::Generation;

use super::Ddp;
use crate::binding::Binding;
use crate::checkpoint;
use crate::error::Error;

impl<B: Binding> Ddp<B> {
    /// Steps of the job so far: the number of the next one, from 0. A worker that comes later finds the
    /// others on their way, and after a death the last step may have to be done again.
    pub fn steps(&self) -> u64 {
        self.with_replica(|replica| replica.steps())
    }

    /// SHA-256 of all trained parameters, the same on every rank and for any number of them: see
    /// [`checkpoint::weights_sha256`].
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank).
    pub fn weights_sha256(&self) -> Result<String, Error> {
        self.with_replica(checkpoint::weights_sha256)
    }

    /// Which membership of an elastic job this is, and why it has begun; `None` in a job whose ranks stay the
    /// same.
    pub fn generation(&self) -> Option<Generation> {
        self.with_replica(|replica| replica.generation())
    }

    /// Asks to leave. The others of an elastic job go on without this worker after the next step, whose report
    /// says so ([`Change::Left`](crate::Change::Left), or [`Change::AllLeft`](crate::Change::AllLeft) where
    /// all have asked). A job whose workers do not change ends for all of them after the same step
    /// ([`Change::AllLeft`](crate::Change::AllLeft)), which may be the one after the next.
    pub fn leave(&self) {
        self.with_replica(|replica| replica.leave());
    }
}
