//! A model that is that of one island after another, or that is not the others', where shards do not
//! synchronise in every step.

use super::Ddp;
use crate::binding::{Binding, Which};
use crate::error::Error;
use crate::shard_pass::lock;

impl<B: Binding> Ddp<B> {
    /// Where shards do not synchronise in every step: the next step is the last one of its round. See
    /// [`Replica::end_round`](crate::Replica::end_round).
    pub fn end_round(&mut self) {
        lock(&self.replica).end_round();
    }

    /// Between two passes: the model gets the values of the island whose pass is next, if it has others.
    pub(super) fn follow_island(&mut self) {
        if lock(&self.replica).island() != self.island {
            self.write(Which::All);
        }
    }

    /// Refuses what needs one model on all ranks.
    pub(super) fn expect_whole_round(&self) -> Result<(), Error> {
        match lock(&self.replica).is_synchronised() {
            true => Ok(()),
            false => {
                let problem = "the model cannot be had in the middle of a round, in which the ranks hold different weights; \
                               call `Ddp::end_round` before the last step";
                Err(Error::Setting(problem.into()))
            }
        }
    }

    /// Refuses sums over the global batch.
    pub(super) fn expect_every_step(&self) -> Result<(), Error> {
        match lock(&self.replica).synchronises_every_step() {
            true => Ok(()),
            false => {
                let problem = "sums over the global batch need all shards in every step, which this mode of synchronisation does not have; \
                               take `every-step`, or layers that need no such sums";
                Err(Error::Setting(problem.into()))
            }
        }
    }
}
