//! How two ranks synchronise: the messages of one to the other, and the bell that wakes who waits. Zeroed
//! memory is an empty lane and a silent bell.
//!
//! A message is written into its slot with relaxed writes, then posted; whoever sees that it is posted sees
//! all of it, and what the sender has written elsewhere before. Taking it is told in the same way, so that
//! the sender may use its memory again. `loom/` goes through all orders in which that can happen.

use std::time::Duration;

use super::sync::{AtomicI32, AtomicU32, AtomicU64, Ordering, SLOTS, fence, fence_after_write, sleep, wake};

/// What wakes a sleeping rank. Alone in its cache line, like everything here that two ranks write.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub(super) struct Bell {
    rings: AtomicU32,
    sleeping: AtomicU32,
    /// One more than the core on which the rank waited last: a hint.
    core: AtomicU32,
}

/// One message: where it lies, and the call it belongs to. One cache line: what a short message costs.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub(super) struct Slot {
    /// One more than the number of the message that is here; written last.
    pub(super) posted: AtomicU32,
    /// Descriptor of the file in the sender's process that the block lies in, or -1 if it is in this process.
    pub(super) file: AtomicI32,
    /// Length of the block, for mapping it.
    pub(super) len: AtomicU64,
    /// Offset in the block, or the address if it is in this process.
    pub(super) offset: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) call: [AtomicU64; 2],
    /// The message itself, if it is a copy of no more bytes than this; else the first word is where in its
    /// file the block begins.
    pub(super) within: [AtomicU64; 2],
}

/// Bytes of a message that travels in its slot.
pub(super) const WITHIN: usize = 16;

#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
struct Counter(AtomicU32);

/// The messages of one sender to one receiver.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(super) struct Lane {
    /// Messages taken so far; written by the receiver.
    taken: Counter,
    slots: [Slot; SLOTS],
}

impl Lane {
    /// The slot of a message.
    pub(super) fn slot(&self, number: u32) -> &Slot {
        &self.slots[number as usize % SLOTS]
    }

    /// How many messages the receiver has taken. It reads none of them any more.
    pub(super) fn taken(&self) -> u32 {
        self.taken.0.load(Ordering::Acquire)
    }

    /// Whether message `number` is in its slot.
    pub(super) fn has(&self, number: u32) -> bool {
        self.slot(number).posted.load(Ordering::Acquire) == number.wrapping_add(1)
    }

    /// Says that message `number`, which is in its slot, can be taken, to the receiver, whose bell this is.
    pub(super) fn post(&self, number: u32, receiver: &Bell) {
        receiver.publish(&self.slot(number).posted, number.wrapping_add(1));
    }

    /// Says that so many messages have been taken, to the sender, whose bell this is.
    pub(super) fn take(&self, count: u32, sender: &Bell) {
        sender.publish(&self.taken.0, count);
    }
}

impl Bell {
    /// The rank is about to sleep: it must look once more at what it waits for, then sleep with what this
    /// gives, or say that it is awake.
    pub(super) fn about_to_sleep(&self) -> u32 {
        self.sleeping.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.rings.load(Ordering::SeqCst)
    }

    /// Sleeps until the bell rings, has rung since, or the limit has passed, which is less than a second.
    pub(super) fn sleep(&self, rings: u32, limit: Duration) {
        sleep(&self.rings, rings, limit);
    }

    /// The rank does not sleep any more.
    pub(super) fn awake(&self) {
        self.sleeping.store(0, Ordering::SeqCst);
    }

    /// The rank waits on this core.
    pub(super) fn waits_on(&self, core: u32) {
        self.core.store(core.wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether the rank waited on this core last.
    pub(super) fn waited_on(&self, core: u32) -> bool {
        self.core.load(Ordering::Relaxed) == core.wrapping_add(1)
    }

    /// Writes what the rank may wait for, and wakes it if it sleeps.
    ///
    /// Either this side sees it sleeping, or it sees what is written here before it falls asleep: the write
    /// is a full fence (in one instruction, which costs a short message less than a store and a fence).
    /// Whoever is awake costs no write to its bell.
    fn publish(&self, word: &AtomicU32, value: u32) {
        word.swap(value, Ordering::SeqCst);
        fence_after_write();
        self.wake();
    }

    /// Wakes the rank if it sleeps: what it waits for has been written before.
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if self.sleeping.load(Ordering::SeqCst) != 0 {
            self.rings.fetch_add(1, Ordering::SeqCst);
            wake(&self.rings);
        }
    }
}

/// In place of a file descriptor: the bytes are in the slot.
pub(super) const IN_SLOT: i32 = -2;

/// Puts a short message into its slot.
pub(super) fn write_within(slot: &Slot, bytes: &[u8]) {
    let mut words = [0; WITHIN];
    words[..bytes.len()].copy_from_slice(bytes);
    for (word, bytes) in slot.within.iter().zip(words.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(std::array::from_fn(|i| bytes[i])), Ordering::Relaxed);
    }
}
