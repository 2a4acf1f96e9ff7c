//! What a transport does once it is connected: it moves segments between this rank and each peer, nothing
//! else.

use std::time::{Duration, Instant};

use crate::fingerprint::Fingerprint;
use crate::memory::{PeerMemory, Place, Segment};
use crate::wait::WaitContext;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

/// Work that other transports of the group go on with while one of them waits: a rank has one thread for all
/// of them.
pub(crate) trait Progress {
    /// Sends what can be sent at once. True if more is to be sent as soon as that is possible.
    fn progress(&mut self, wait: &WaitContext<'_>) -> Result<bool, Error>;
}

/// The progress of a group with one transport.
pub(crate) struct NoOthers;

impl Progress for NoOthers {
    fn progress(&mut self, _: &WaitContext<'_>) -> Result<bool, Error> {
        Ok(false)
    }
}

/// How long a transport may sleep while another one has something to send.
pub(crate) const SHORT_SLEEP: Duration = Duration::from_micros(40);

/// Messages between this rank and each peer, in order.
///
/// A message is a reference to the sender's bytes. They must stay as they are until the receiver has taken
/// the message; [`Transport::settle`] waits for that. A message can be sent as a copy instead, and is where
/// the bytes lie in no block and the receiver would read them in place.
///
/// Every method that may wait lets the group's `others` make progress meanwhile.
pub(crate) trait Transport: Send {
    /// Offers bytes to a peer. Waits only if the peer has not taken the last
    /// [`MAX_UNTAKEN`](kolo_schedule::MAX_UNTAKEN) messages.
    fn send(
        &mut self,
        to: Rank,
        segment: Segment<'_>,
        copied: bool,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<(), Error>;

    /// The address of the next message from a peer, of exactly `bytes` bytes: readable until it is released.
    fn receive(
        &mut self,
        from: Rank,
        bytes: usize,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<*const u8, Error>;

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
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<(), Error> {
        let message = self.receive(from, bytes, wait, others)?;
        // SAFETY: `receive` gives `bytes` readable bytes in memory of the peer or of the transport, which
        // does not overlap this rank's buffer.
        unsafe { std::ptr::copy_nonoverlapping(message, into, bytes) };
        self.release(from);
        Ok(())
    }

    /// Sends what can be sent at once. True if more is to be sent as soon as that is possible. A transport
    /// whose messages are on their way when `send` returns has nothing to do here.
    fn progress(&mut self, _wait: &WaitContext<'_>) -> Result<bool, Error> {
        Ok(false)
    }

    /// Waits until every message sent so far that refers to a buffer has been taken.
    fn settle(&mut self, wait: &WaitContext<'_>, others: &mut dyn Progress) -> Result<(), Error>;

    /// Connections to each peer over which messages go in turn, and how many of them there are.
    fn streams(&self) -> (usize, usize) {
        (1, 1)
    }

    /// From now on messages go over so many of the connections to each peer, at least one and at most those
    /// that there are. Both ends must change between the same two messages.
    fn use_streams(&mut self, _count: usize) {}

    /// A collective has failed: from now on nothing of what it has offered may be looked at. Nothing is sent
    /// or received after this.
    fn abandon(&mut self) {}

    /// How its ranks read each other's buffers where they lie; `None` where they cannot.
    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        None
    }

    /// Before this rank leaves in good order: waits for what peers still have to read here, at most until
    /// `until`.
    ///
    /// `gone` tells who will not read any more.
    fn drain(&mut self, _gone: &dyn Fn(Rank) -> bool, _until: Instant) {}
}

/// Reading of buffers where they lie, for longer than a message.
pub(crate) trait InPlace {
    /// Where a segment lies, for peers; and whether it is in memory that they have not mapped yet. `None`
    /// where they cannot read it.
    fn show(&mut self, segment: Segment<'_>) -> Option<(Place, bool)>;

    /// The memory of a peer in which `bytes` bytes lie there.
    fn find(
        &mut self,
        from: Rank,
        place: Place,
        bytes: u64,
        wait: &WaitContext<'_>,
    ) -> Result<PeerMemory, Error>;
}

/// Checks that a message belongs to the call this rank is in.
pub(super) fn same_call(theirs: [u64; 2], from: Rank, wait: &WaitContext<'_>) -> Result<(), Error> {
    if theirs == wait.call.words() {
        return Ok(());
    }
    Err(Error::Mismatch {
        here: wait.name(wait.here),
        ours: wait.call.to_string(),
        there: wait.name(from),
        theirs: Fingerprint::describe(theirs),
    })
}

/// Checks that a message is as long as this rank expects.
pub(super) fn same_length(
    sent: u64,
    expected: usize,
    from: Rank,
    wait: &WaitContext<'_>,
) -> Result<(), Error> {
    if sent == expected as u64 {
        return Ok(());
    }
    let of = |bytes: u64| format!("{bytes} bytes in {}", wait.call);
    Err(Error::Mismatch {
        here: wait.name(wait.here),
        ours: of(expected as u64),
        there: wait.name(from),
        theirs: of(sent),
    })
}
