//! What the ranks agree on in every step: whether any of them used a parameter more or less often than expected. What observers
//! have to tell travels with it.

use std::time::Duration;

use kolo_comm::schedule::Chunks;
use kolo_comm::{Collective, Group, Op, Pending};

use super::piggyback::{FLAGS, Heard, Piggyback};
use crate::error::Error;
use crate::timed::timed;

/// The agreement of one step on its way: a byte of the step's own and a few of its observers' from every rank, and the observers'
/// numbers where they have some.
#[derive(Default)]
pub(super) struct Agreement {
    flags: Option<Pending<u8>>,
    numbers: Option<Pending<f64>>,
}

impl Agreement {
    /// Tells the others whether this rank saw another number of uses than expected, and what its observers have to tell.
    ///
    /// # Errors
    ///
    /// Memory cannot be had.
    pub(super) fn start(&mut self, group: &Group, surprise: bool, told: &Piggyback) -> Result<(), Error> {
        if let Some(own) = &told.numbers {
            let mut buffer = group.alloc::<f64>(own.len() * group.world_size())?;
            buffer[group.rank().0 * own.len()..][..own.len()].copy_from_slice(own);
            self.numbers = Some(group.start(Collective::AllGather(Chunks::Equal), buffer));
        }
        let mut flags = group.alloc::<u8>(1 + FLAGS)?;
        flags[0] = u8::from(surprise);
        flags[1..].copy_from_slice(&told.flags);
        self.flags = Some(group.start(Collective::AllReduce(Op::Max), flags));
        Ok(())
    }

    /// Waits for the others: whether any rank was surprised, and what their observers have told. `None` where nothing has been
    /// started, because the step is not synchronised.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(super) fn finish(&mut self, exposed: &mut Duration) -> Result<Option<(bool, Heard)>, Error> {
        let mut heard = Heard::default();
        if let Some(pending) = self.numbers.take() {
            heard.numbers = Some(timed(exposed, || pending.wait())?.to_vec());
        }
        let Some(pending) = self.flags.take() else { return Ok(None) };
        let flags = timed(exposed, || pending.wait())?;
        heard.flags = Some(std::array::from_fn(|flag| flags[1 + flag]));
        Ok(Some((flags[0] != 0, heard)))
    }
}
