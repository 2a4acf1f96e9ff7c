//! Moving segments between two ranks; nothing else. In order of distance: [`mailbox`] for ranks that share
//! memory (threads of one process, processes of one host), [`tcp`] for all others, [`mixed`] for groups with both.

pub(crate) mod channel;
pub(crate) mod data_listener;
mod inbox;
pub(crate) mod mailbox;
pub(crate) mod mixed;
mod outbox;
pub(crate) mod tcp;
mod tries;

use std::time::Instant;

use crate::memory::Block;
use crate::wait::Patience;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

/// A run of bytes of a block that a collective holds.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) block: &'a Block,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl Span<'_> {
    fn start(&self) -> *const u8 {
        assert!(self.offset + self.bytes <= self.block.len(), "a span lies inside its block");
        // SAFETY: inside the block, as just checked.
        unsafe { self.block.start().as_ptr().add(self.offset).cast_const() }
    }
}

/// Work that goes on while a rank waits for something else.
trait Idle {
    /// Does what can be done at once.
    fn go_on(&mut self, patience: &Patience<'_>) -> Result<Busy, Error>;
}

/// Whether there is more to do, as soon as it is possible.
#[derive(PartialEq)]
enum Busy {
    Yes,
    No,
}

/// Messages between this rank and each peer, in order.
///
/// A message is a reference to the sender's bytes. They must stay as they are until the receiver has taken the
/// message; [`Transport::settle`] waits for that. A short message can be sent as a copy instead.
pub(crate) trait Transport: Send {
    /// Offers bytes to a peer. Waits only if the peer has not taken the last
    /// [`MAX_UNTAKEN`](kolo_schedule::MAX_UNTAKEN) messages.
    fn send(&mut self, to: Rank, span: Span<'_>, copied: bool, patience: &Patience<'_>) -> Result<(), Error>;

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

    /// Waits until every message sent so far that refers to a buffer has been taken.
    fn settle(&mut self, patience: &Patience<'_>) -> Result<(), Error>;

    /// Before this rank leaves in good order: waits for what peers still have to read here, at most until `until`.
    ///
    /// `gone` tells who will not read any more.
    fn drain(&mut self, _gone: &dyn Fn(Rank) -> bool, _until: Instant) {}

    /// Its name, as in `KOLO_TRANSPORT`.
    fn name(&self) -> &'static str;
}

/// The transport of a group of one: there is nobody to talk to.
pub(crate) struct Solo;

impl Transport for Solo {
    fn send(&mut self, to: Rank, _: Span<'_>, _: bool, _: &Patience<'_>) -> Result<(), Error> {
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
        here: patience.name(patience.here),
        ours: patience.call.to_string(),
        there: patience.name(from),
        theirs: crate::call::Call::describe(theirs),
    })
}

/// Checks that a message is as long as this rank expects.
fn same_length(sent: u64, expected: usize, from: Rank, patience: &Patience<'_>) -> Result<(), Error> {
    if sent == expected as u64 {
        return Ok(());
    }
    let of = |bytes: u64| format!("{bytes} bytes in {}", patience.call);
    Err(Error::Mismatch {
        here: patience.name(patience.here),
        ours: of(expected as u64),
        there: patience.name(from),
        theirs: of(sent),
    })
}
