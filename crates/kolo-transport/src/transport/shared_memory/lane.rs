//! Synchronization of two ranks: the messages of one to the other, and the bell that wakes a waiting
//! rank. Zeroed memory is an empty lane and a silent bell.
//!
//! The sender writes a message into its slot with relaxed writes, then posts it. A receiver that sees the
//! post sees the whole message and all earlier writes of the sender. The receiver reports in the same way
//! that it has taken the message, so the sender may reuse its memory. `loom/` goes through all orders.

use std::time::Duration;

use super::sync::{AtomicI32, AtomicU32, AtomicU64, Ordering, SLOTS, fence, fence_after_write, sleep, wake};

/// Wakes a sleeping rank. It has its own cache line, like everything here that two ranks write.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub(super) struct Bell {
    rings: AtomicU32,
    sleeping: AtomicU32,
    /// One more than the core on which the rank waited last: a hint.
    core: AtomicU32,
}

/// One message: its place, and its call. It is one cache line, the cost of a short message.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub(super) struct Slot {
    /// One more than the number of the message in this slot; written last.
    pub(super) posted: AtomicU32,
    /// Descriptor of the block's file in the sender's process, or -1 if the block is in this process.
    pub(super) file: AtomicI32,
    /// Length of the block, for mapping it.
    pub(super) len: AtomicU64,
    /// Offset in the block, or the address if it is in this process.
    pub(super) offset: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) call: [AtomicU64; 2],
    /// The message itself, if it is a copy that fits here; else the first word is the block's file offset.
    pub(super) within: [AtomicU64; 2],
}

/// Longest message that travels in its slot, in bytes.
pub(super) const WITHIN: usize = 16;

#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
struct Counter(AtomicU32);

/// The messages of one sender to one receiver.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(super) struct Lane {
    /// Number of messages taken so far; written by the receiver.
    taken: Counter,
    slots: [Slot; SLOTS],
}

impl Lane {
    pub(super) fn slot(&self, number: u32) -> &Slot {
        &self.slots[number as usize % SLOTS]
    }

    /// Number of messages that the receiver has taken, and no longer reads.
    pub(super) fn taken(&self) -> u32 {
        self.taken.0.load(Ordering::Acquire)
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.slot(number).posted.load(Ordering::Acquire) == number.wrapping_add(1)
    }

    /// Notifies the receiver, whose bell this is, that message `number` is in its slot.
    pub(super) fn post(&self, number: u32, receiver: &Bell) {
        receiver.publish(&self.slot(number).posted, number.wrapping_add(1));
    }

    /// Notifies the sender, whose bell this is, that `count` messages have been taken.
    pub(super) fn take(&self, count: u32, sender: &Bell) {
        sender.publish(&self.taken.0, count);
    }
}

impl Bell {
    /// Announces that the rank is about to sleep. The rank must then check its condition once more, and
    /// either call [`Bell::sleep`] with the returned number or [`Bell::awake`].
    pub(super) fn about_to_sleep(&self) -> u32 {
        self.sleeping.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.rings.load(Ordering::SeqCst)
    }

    /// Sleeps until the bell rings, has rung since, or the limit has passed, which is less than a second.
    pub(super) fn sleep(&self, rings: u32, limit: Duration) {
        sleep(&self.rings, rings, limit);
    }

    pub(super) fn awake(&self) {
        self.sleeping.store(0, Ordering::SeqCst);
    }

    pub(super) fn waits_on(&self, core: u32) {
        self.core.store(core.wrapping_add(1), Ordering::Relaxed);
    }

    pub(super) fn waited_on(&self, core: u32) -> bool {
        self.core.load(Ordering::Relaxed) == core.wrapping_add(1)
    }

    /// Writes a word that the rank may wait for, and wakes the rank if it sleeps.
    ///
    /// Either this side sees it sleeping, or the rank sees this write before it falls asleep: the write
    /// is a full fence (in one instruction, which costs a short message less than a store and a fence). A
    /// rank that is awake costs no write to its bell.
    fn publish(&self, word: &AtomicU32, value: u32) {
        word.swap(value, Ordering::SeqCst);
        fence_after_write();
        self.wake();
    }

    /// Wakes the rank if it sleeps. The word that it waits for must have been written before.
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

/// Stands for a file descriptor: the bytes are in the slot.
pub(super) const IN_SLOT: i32 = -2;

/// Writes a short message into its slot.
pub(super) fn write_within(slot: &Slot, bytes: &[u8]) {
    let mut words = [0; WITHIN];
    words[..bytes.len()].copy_from_slice(bytes);
    for (word, bytes) in slot.within.iter().zip(words.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(std::array::from_fn(|i| bytes[i])), Ordering::Relaxed);
    }
}
