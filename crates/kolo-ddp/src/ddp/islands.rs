//! A model that is that of one island after another, or that is not the others', where shards do not
//! synchronise in every step; or that lacks its last gradient, where updates are one step late.

use super::Ddp;
use crate::binding::{Binding, Which};
use crate::error::Error;
use crate::shard_pass::lock;

impl<B: Binding> Ddp<B> {
    /// Where shards do not synchronise in every step: the next step is the last one of its round; where
    /// updates are one step late: that step's are made at its end, too. See
    /// [`Replica::end_round`](crate::Replica::end_round).
    pub fn end_round(&mut self) {
        lock(&self.replica).end_round();
    }

    /// Between two passes: the model gets the values of the island whose pass is next, if it has others.
    pub(super) fn follow_island(&mut self) {
        if lock(&self.replica).island() != self.island {
            self.write(Which::Changing);
        }
    }

    /// Refuses what needs one model on all ranks.
    pub(super) fn expect_whole_round(&self) -> Result<(), Error> {
        let replica = lock(&self.replica);
        let problem = match (replica.is_synchronised(), replica.traits().is_delayed) {
            (true, _) => return Ok(()),
            (false, false) => {
                "the model cannot be had in the middle of a round, in which the ranks hold different weights"
            }
            (false, true) => "the model cannot be had while the gradient of the last step is on its way",
        };
        Err(Error::Setting(format!("{problem}; call `Ddp::end_round` before the last step")))
    }

    /// Refuses sums in the middle of a pass where no gradient may be on its way meanwhile.
    pub(super) fn expect_nothing_on_its_way(&self) -> Result<(), Error> {
        match lock(&self.replica).traits().is_delayed {
            false => Ok(()),
            true => {
                let transport = self.group.transport();
                let problem = format!(
                    "{transport} does one thing at a time, so with it sums over the global batch cannot be had while a gradient is on \
                     its way; take `every-step`, or another transport"
                );
                Err(Error::Setting(problem))
            }
        }
    }

    /// Refuses sums over the global batch.
    pub(super) fn expect_every_step(&self) -> Result<(), Error> {
        lock(&self.replica).expect_global_batch()
    }
}
