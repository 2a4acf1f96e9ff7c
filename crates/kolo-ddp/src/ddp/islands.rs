//! Models that differ between ranks or islands in the middle of a round (where shards do not synchronize in
//! every step), or that lack their last gradient (where updates are one step late).

use super::Ddp;
use crate::binding::{Binding, Which};
use crate::shard_pass::lock;
use kolo_reduction::Error;

impl<B: Binding> Ddp<B> {
    /// Ends the round with the next step, where shards do not synchronize in every step. Where updates are
    /// one step late, the next step's updates are made at its end, too. See
    /// [`Replica::end_round`](crate::Replica::end_round).
    pub fn end_round(&mut self) {
        lock(&self.replica).end_round();
    }

    /// Gives the model, between two passes, the values of the island whose pass is next, if they differ.
    pub(super) fn follow_island(&mut self) {
        if lock(&self.replica).island() != self.island {
            self.write(Which::Changing);
        }
    }

    /// Refuses calls that need the same model on all ranks.
    pub(super) fn expect_whole_round(&self) -> Result<(), Error> {
        let replica = lock(&self.replica);
        let problem = match (replica.is_synchronized(), replica.traits().is_delayed) {
            (true, _) => return Ok(()),
            (false, false) => {
                "there is no one model in the middle of a round, because the ranks hold different weights"
            }
            (false, true) => "there is no up-to-date model while the gradient of the last step is on its way",
        };
        Err(Error::Setting(format!("{problem}; call `Ddp::end_round` before the last step")))
    }

    /// Refuses sums in the middle of a pass if no gradient may be in flight at that time.
    pub(super) fn expect_nothing_on_its_way(&self) -> Result<(), Error> {
        match lock(&self.replica).traits().is_delayed {
            false => Ok(()),
            true => {
                let transport = self.group.transport();
                let problem = format!(
                    "{transport} does one thing at a time, so it cannot sum over the global batch while a gradient is on \
                     its way; take `every-step`, or another transport"
                );
                Err(Error::Setting(problem))
            }
        }
    }

    /// Refuses sums over the global batch if not every step has all shards.
    pub(super) fn expect_every_step(&self) -> Result<(), Error> {
        lock(&self.replica).expect_global_batch()
    }
}
