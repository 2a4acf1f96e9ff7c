//! What the ranks agree on in every step: whether any of them used a parameter more or less often than
//! expected. What observers have to tell travels with it.

use std::time::Duration;

use kolo_comm::schedule::Chunks;
use kolo_comm::{Buffer, Collective, Group, Op, Pending};

use super::piggyback::{FLAGS, Heard, Piggyback};
use crate::error::Error;
use crate::timed::timed;

/// Bytes of a fingerprint.
const PRINT: usize = size_of::<u64>();

/// The agreement of one step on its way: a byte of the step's own and a few of its observers' from every
/// rank, a fingerprint of what must be the same on all of them, and the observers' numbers where they have
/// some.
#[derive(Default)]
pub(super) struct Agreement {
    flags: Option<Pending<Buffer<u8>>>,
    numbers: Option<Pending<Buffer<f64>>>,
}

impl Agreement {
    /// Tells the others whether this rank saw another number of uses than expected, and what its observers
    /// have to tell.
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
        let mut flags = group.alloc::<u8>(1 + FLAGS + 2 * PRINT)?;
        flags[0] = u8::from(surprise);
        flags[1..=FLAGS].copy_from_slice(&told.flags);
        // The largest of each byte is also the smallest of it if all ranks have the same.
        flags[1 + FLAGS..][..PRINT].copy_from_slice(&told.settings.to_le_bytes());
        flags[1 + FLAGS + PRINT..].copy_from_slice(&(!told.settings).to_le_bytes());
        self.flags = Some(group.start(Collective::AllReduce(Op::Max), flags));
        Ok(())
    }

    /// Waits for the others: whether any rank was surprised, and what their observers have told. `None` where
    /// nothing has been started, because the step is not synchronised.
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
        let (largest, smallest) = flags[1 + FLAGS..].split_at(PRINT);
        heard.settings_differ =
            largest.iter().zip(smallest).any(|(largest, smallest)| *largest != !*smallest);
        Ok(Some((flags[0] != 0, heard)))
    }
}
