//! The interface of a connected transport: it only moves segments between this rank and each peer.

use std::time::{Duration, Instant};

use crate::fingerprint::Fingerprint;
use crate::memory::{PeerMemory, Place, Segment};
use crate::wait::WaitContext;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

/// Work on a group's other transports while one of them waits: a rank has one thread for all of them.
pub trait Progress {
    /// Sends as much as possible without waiting. Returns true if more remains to be sent.
    fn progress(&mut self, wait: &WaitContext<'_>) -> Result<bool, Error>;
}

/// The progress of a group with one transport.
pub(crate) struct NoOthers;

impl Progress for NoOthers {
    fn progress(&mut self, _: &WaitContext<'_>) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Longest sleep of a transport while another one has something to send.
pub(crate) const SHORT_SLEEP: Duration = Duration::from_micros(40);

/// Messages between this rank and each peer, in order.
///
/// A message refers to the sender's bytes, which must not change until the receiver has taken the
/// message; [`Transport::settle`] waits for that. A message can be sent as a copy instead. It always is
/// if the receiver would read the bytes in place but they lie in no block.
///
/// Every method that may wait lets the group's `others` make progress meanwhile.
pub trait Transport: Send {
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

    /// Returns the address of a peer's next message, of exactly `bytes` bytes; readable until its release.
    fn receive(
        &mut self,
        from: Rank,
        bytes: usize,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<*const u8, Error>;

    /// Releases all messages received from a peer so far.
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

    /// Sends as much as possible without waiting. Returns true if more remains to be sent. Does nothing
    /// in a transport whose messages are on their way when `send` returns.
    fn progress(&mut self, _wait: &WaitContext<'_>) -> Result<bool, Error> {
        Ok(false)
    }

    /// Waits until peers have taken every message sent so far that refers to a buffer.
    fn settle(&mut self, wait: &WaitContext<'_>, others: &mut dyn Progress) -> Result<(), Error>;

    /// Number of connections to each peer that messages take turns on, and number of open ones.
    fn streams(&self) -> (usize, usize) {
        (1, 1)
    }

    /// Spreads messages from now on over `count` connections to each peer, at least one and at most the
    /// open ones. Both ends must change it between the same two messages.
    fn use_streams(&mut self, _count: usize) {}

    /// Stops after a failed collective: from now on nothing may read the bytes that it has offered. No
    /// message is sent or received after this.
    fn abandon(&mut self) {}

    /// Access to the peers' buffers in place; `None` if that is impossible.
    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        None
    }

    /// Waits, before this rank leaves in good order, until peers have read what they still need here, at
    /// most until `until`. `gone` returns true for a peer that will not read any more.
    fn drain(&mut self, _gone: &dyn Fn(Rank) -> bool, _until: Instant) {}
}

/// In-place access to buffers, for longer than a message.
pub trait InPlace {
    /// Returns the place of a segment for peers, and true if its memory is new to them, so that they must
    /// map it. `None` if peers cannot read it.
    fn show(&mut self, segment: Segment<'_>) -> Option<(Place, bool)>;

    /// Returns the memory of a peer's `bytes` bytes at `place`.
    fn find(
        &mut self,
        from: Rank,
        place: Place,
        bytes: u64,
        wait: &WaitContext<'_>,
    ) -> Result<PeerMemory, Error>;
}

/// Checks that a message belongs to this rank's current call.
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

/// Checks that a message has the expected length.
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
