//! Moving segments between two ranks; nothing else. In order of distance: [`mailbox`] for ranks that share
//! memory (threads of one process, processes of one host), [`tcp`] for all others.

pub(crate) mod channel;
pub(crate) mod mailbox;
pub(crate) mod tcp;

use crate::error::Error;
use crate::liveness::Patience;
use crate::memory::Block;
use crate::rank::Rank;

/// A run of bytes of a block that a collective holds.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) block: &'a Block,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// Messages between this rank and each peer, in order.
///
/// A message is a reference to the sender's bytes. They must stay as they are until the receiver has taken the
/// message; [`Transport::settle`] waits for that.
pub(crate) trait Transport: Send {
    /// Offers bytes to a peer. Waits only if the peer has not taken the last
    /// [`MAX_UNTAKEN`](crate::schedule::MAX_UNTAKEN) messages.
    fn send(&mut self, to: Rank, span: Span<'_>, patience: &Patience<'_>) -> Result<(), Error>;

    /// The address of the next message from a peer, of exactly `bytes` bytes: readable until it is released.
    fn receive(&mut self, from: Rank, bytes: usize, patience: &Patience<'_>) -> Result<*const u8, Error>;

    /// Lets go of everything received from a peer so far.
    fn release(&mut self, from: Rank);

    /// Copies the next message from a peer to `into` and releases it.
    ///
    /// # Safety
    ///
    /// `into` is writable for `bytes` bytes.
    unsafe fn receive_into(
        &mut self,
        from: Rank,
        into: *mut u8,
        bytes: usize,
        patience: &Patience<'_>,
    ) -> Result<(), Error> {
        let message = self.receive(from, bytes, patience)?;
        // SAFETY: `receive` gives `bytes` readable bytes in memory of the peer or of the transport, which does
        // not overlap this rank's buffer.
        unsafe { std::ptr::copy_nonoverlapping(message, into, bytes) };
        self.release(from);
        Ok(())
    }

    /// Waits until every message sent so far has been taken.
    fn settle(&mut self, patience: &Patience<'_>) -> Result<(), Error>;

    /// Its name, as in `KOLO_TRANSPORT`.
    fn name(&self) -> &'static str;
}

/// The transport of a group of one: there is nobody to talk to.
pub(crate) struct Solo;

impl Transport for Solo {
    fn send(&mut self, to: Rank, _: Span<'_>, _: &Patience<'_>) -> Result<(), Error> {
        unreachable!("a group of one sends nothing to {to}")
    }

    fn receive(&mut self, from: Rank, _: usize, _: &Patience<'_>) -> Result<*const u8, Error> {
        unreachable!("a group of one receives nothing from {from}")
    }

    fn release(&mut self, _: Rank) {}

    fn settle(&mut self, _: &Patience<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn name(&self) -> &'static str {
        "solo"
    }
}

/// Checks that a message belongs to the call this rank is in.
fn same_call(theirs: [u64; 2], from: Rank, patience: &Patience<'_>) -> Result<(), Error> {
    if theirs == patience.call.pack() {
        return Ok(());
    }
    Err(Error::Mismatch {
        here: patience.here,
        ours: patience.call.to_string(),
        there: from,
        theirs: crate::call::Call::describe(theirs),
    })
}
