//! The replica's position in its job: queries of a training loop between two steps.

use kolo_comm::Generation;

use super::Ddp;
use crate::binding::{Binding, Source, Values, Which};
use crate::checkpoint;
use kolo_reduction::Error;

impl<B: Binding> Ddp<B> {
    /// Steps of the job so far: the number of the next one, from 0. It is not 0 for a worker that joins
    /// later, and after a death the last step may have to be repeated.
    pub fn steps(&self) -> u64 {
        self.with_replica(|replica| replica.steps())
    }

    /// SHA-256 of all trained parameters, the same on every rank and for any number of them: see
    /// [`checkpoint::weights_sha256`]. Fails if the last step's reduction failed (naming the rank).
    pub fn weights_sha256(&self) -> Result<String, Error> {
        self.with_replica(checkpoint::weights_sha256)
    }

    /// Checks that the model had its values in all forward passes so far: where values are divided
    /// ([`Config::sharding`](crate::Config::sharding)), those of a worker that dies are NaN, which a forward
    /// pass cannot report.
    ///
    /// # Errors
    ///
    /// A worker has died or left (naming it), or the last step's reduction failed.
    pub fn expect_values(&self) -> Result<(), Error> {
        self.with_replica(|replica| replica.core.apply_outstanding())
    }

    /// Returns a copy of the model with the averages of its weights, if the optimizer is
    /// [`Averaged`](crate::optimizer::Averaged). A collective if the optimizer's state is divided
    /// ([`Config::sharding`](crate::Config::sharding)). Fails if the last step's reduction failed (naming the
    /// rank).
    pub fn averaged_model(&self) -> Result<Option<B>, Error>
    where
        B: Clone,
    {
        let Some(averages) = self.with_replica(|replica| replica.averages())? else { return Ok(None) };
        let mut model = self.model.clone();
        let values = Values { layout: self.layout.clone(), source: Source::Copied(averages.into()) };
        model.write(Which::All, &values);
        Ok(Some(model))
    }

    /// The current membership of an elastic job, and why it has begun; `None` in a job whose ranks stay the
    /// same.
    pub fn generation(&self) -> Option<Generation> {
        self.with_replica(|replica| replica.generation())
    }

    /// Asks to leave. The other workers of an elastic job continue without this one after the next step,
    /// whose report has [`Change::Left`](crate::Change::Left), or
    /// [`Change::AllLeft`](crate::Change::AllLeft) if all have asked. A job whose workers do not change ends
    /// for all of them after the same step ([`Change::AllLeft`](crate::Change::AllLeft)), which may be the
    /// one after the next.
    pub fn leave(&self) {
        self.with_replica(|replica| replica.leave());
    }
}
