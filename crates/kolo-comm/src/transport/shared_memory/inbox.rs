//! The memory in which ranks of one host leave each other messages. Zeroed pages are an empty inbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

use rustix::thread::futex;

use crate::memory::Mapping;
use kolo_schedule::{MAX_UNTAKEN, Rank};

/// What wakes a sleeping rank. Alone in its cache line, like everything here that two ranks write.
#[repr(C, align(64))]
pub(super) struct Bell {
    pub(super) rings: AtomicU32,
    pub(super) sleeping: AtomicU32,
}

/// One message: where it lies, and the call it belongs to. One cache line: what a short message costs.
#[repr(C, align(64))]
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
pub(super) struct Counter(pub(super) AtomicU32);

/// The messages of one sender to one receiver.
#[repr(C)]
pub(super) struct Lane {
    /// Messages taken so far; written by the receiver.
    pub(super) taken: Counter,
    pub(super) slots: [Slot; MAX_UNTAKEN],
}

/// Zeroed pages are an empty inbox.
#[derive(Clone)]
pub(super) struct Inbox {
    pub(super) pages: Arc<Mapping>,
}

impl Inbox {
    pub(super) fn bell(&self) -> &Bell {
        // SAFETY: pages start with a Bell, are page-aligned, zeroed at first, and only touched through
        // atomics.
        unsafe { self.pages.start().cast().as_ref() }
    }

    pub(super) fn lane(&self, from: Rank) -> &Lane {
        let offset = size_of::<Bell>() + from.0 * size_of::<Lane>();
        assert!(offset + size_of::<Lane>() <= self.pages.len(), "{from} has no lane here");
        // SAFETY: inside the pages, aligned because both sizes are multiples of 64; otherwise as above.
        unsafe { self.pages.start().add(offset).cast().as_ref() }
    }

    /// Writes what the rank may wait for, and wakes it if it sleeps.
    ///
    /// Either this side sees it sleeping, or it sees what is written here before it falls asleep: the write
    /// is a full fence (in one instruction, which costs a short message less than a store and a fence).
    /// Whoever is awake costs no write to its bell.
    pub(super) fn publish(&self, word: &AtomicU32, value: u32) {
        word.swap(value, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the rank if it sleeps.
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        let bell = self.bell();
        if bell.sleeping.load(Ordering::SeqCst) != 0 {
            bell.rings.fetch_add(1, Ordering::SeqCst);
            // A failed wake-up is one that nobody needed.
            let _ = futex::wake(&bell.rings, futex::Flags::empty(), 1);
        }
    }
}

/// Bytes of an inbox.
pub(super) fn inbox_len(world: usize) -> usize {
    size_of::<Bell>() + world * size_of::<Lane>()
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
