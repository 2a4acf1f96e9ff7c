//! The transport of ranks that can see each other's memory.
//!
//! Every rank has an inbox in memory that all others have mapped: a bell, and a lane for each sender. A message is
//! a slot in a lane that says where the bytes lie; the receiver reads them there. Nothing is copied.
//!
//! Waiting: a short spin, then sleep on the bell (a futex). The spin grows while waits turn out to be short and
//! shrinks while they turn out to be long. So two ranks on two idle cores answer in a fraction of a microsecond, and a rank whose core is
//! needed for training gives it up at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

use super::{Span, Transport, same_call};
use crate::error::Error;
use crate::liveness::{Liveness, Patience};
use crate::memory::Mapping;
use crate::rank::Rank;
use crate::schedule::MAX_UNTAKEN;

/// What wakes a sleeping rank. Alone in its cache line, like everything here that two ranks write.
#[repr(C, align(64))]
struct Bell {
    rings: AtomicU32,
    sleeping: AtomicU32,
}

/// One message: where it lies, and the call it belongs to.
#[repr(C, align(64))]
struct Slot {
    /// File descriptor of the block in the sender's process, or -1 if it is in this process.
    file: AtomicU64,
    /// Length of the block, for mapping it.
    len: AtomicU64,
    /// Offset in the block, or the address if it is in this process.
    offset: AtomicU64,
    bytes: AtomicU64,
    call: [AtomicU64; 2],
}

#[repr(C, align(64))]
struct Counter(AtomicU32);

/// The messages of one sender to one receiver.
#[repr(C)]
struct Lane {
    /// Messages posted so far; written by the sender.
    posted: Counter,
    /// Messages taken so far; written by the receiver.
    taken: Counter,
    slots: [Slot; MAX_UNTAKEN],
}

/// Zeroed pages are an empty inbox.
#[derive(Clone)]
struct Inbox {
    pages: Arc<Mapping>,
}

impl Inbox {
    fn bell(&self) -> &Bell {
        // SAFETY: pages start with a Bell, are page-aligned, zeroed at first, and only touched through atomics.
        unsafe { self.pages.start().cast().as_ref() }
    }

    fn lane(&self, from: Rank) -> &Lane {
        let offset = size_of::<Bell>() + from.0 * size_of::<Lane>();
        assert!(offset + size_of::<Lane>() <= self.pages.len(), "{from} has no lane here");
        // SAFETY: inside the pages, aligned because both sizes are multiples of 64; otherwise as above.
        unsafe { self.pages.start().add(offset).cast().as_ref() }
    }

    fn ring(&self) {
        let bell = self.bell();
        bell.rings.fetch_add(1, Ordering::SeqCst);
        if bell.sleeping.load(Ordering::SeqCst) != 0 {
            // A failed wake-up is one that nobody needed.
            let _ = futex::wake(&bell.rings, futex::Flags::empty(), 1);
        }
    }
}

/// Bytes of an inbox.
pub(crate) fn inbox_len(world: usize) -> usize {
    size_of::<Bell>() + world * size_of::<Lane>()
}

/// Where the peers' blocks are.
enum Place {
    /// In this process: a slot holds the address.
    Here,
    /// In other processes: a slot holds file and offset. Blocks are mapped when first seen.
    Elsewhere { pids: Vec<u32>, seen: HashMap<(Rank, u64), Mapping> },
}

/// Iterations of the spin, some 10 ns each: the least and the most.
const SPIN: (u32, u32) = (16, 4096);
/// A sleep shorter than this would better have been a spin.
const SHORT: Duration = Duration::from_micros(40);

/// See the module's text.
pub(crate) struct Mailbox {
    here: Rank,
    inboxes: Vec<Inbox>,
    place: Place,
    posted: Vec<u32>,
    received: Vec<u32>,
    spin: u32,
}

impl Mailbox {
    /// Mailboxes of ranks that are threads of this process; `inboxes` has one mapping for each rank.
    pub(crate) fn within_process(here: Rank, inboxes: &[Arc<Mapping>], liveness: &Liveness) -> Self {
        Self::new(here, inboxes, Place::Here, liveness)
    }

    /// Mailboxes of ranks that are processes of this host, `pids` their numbers.
    pub(crate) fn across_processes(
        here: Rank,
        inboxes: &[Arc<Mapping>],
        pids: Vec<u32>,
        liveness: &Liveness,
    ) -> Self {
        Self::new(here, inboxes, Place::Elsewhere { pids, seen: HashMap::new() }, liveness)
    }

    fn new(here: Rank, inboxes: &[Arc<Mapping>], place: Place, liveness: &Liveness) -> Self {
        let inboxes: Vec<Inbox> = inboxes.iter().map(|pages| Inbox { pages: pages.clone() }).collect();
        let own = inboxes[here.0].clone();
        liveness.on_event(Box::new(move || own.ring()));
        let world = inboxes.len();
        Mailbox { here, inboxes, place, posted: vec![0; world], received: vec![0; world], spin: 256 }
    }

    /// Waits until `ready`, which looks at memory that `peer` writes before it rings this rank's bell.
    fn wait(
        &mut self,
        peer: Rank,
        patience: &Patience<'_>,
        ready: impl Fn(&Self) -> bool,
    ) -> Result<(), Error> {
        for _ in 0..self.spin {
            if ready(self) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let asleep = Instant::now();
        let _note = patience.waiting(peer);
        let own = self.inboxes[self.here.0].clone();
        let bell = own.bell();
        loop {
            bell.sleeping.store(1, Ordering::SeqCst);
            let rings = bell.rings.load(Ordering::SeqCst);
            // In this order: a peer may finish its part, leave, and be seen to have left before its part is.
            let verdict = patience.check(peer);
            if ready(self) {
                break;
            }
            if verdict.is_ok() {
                let nap = patience.nap();
                let nap = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
                // Woken, rung meanwhile, interrupted or timed out: all lead to another look.
                let _ = futex::wait(&bell.rings, futex::Flags::empty(), rings, Some(&nap));
                continue;
            }
            bell.sleeping.store(0, Ordering::SeqCst);
            return verdict;
        }
        bell.sleeping.store(0, Ordering::SeqCst);
        self.spin =
            if asleep.elapsed() < SHORT { self.spin * 2 } else { self.spin / 2 }.clamp(SPIN.0, SPIN.1);
        Ok(())
    }

    /// The address at which this process can read what a slot describes.
    fn locate(
        &mut self,
        from: Rank,
        file: u64,
        len: u64,
        offset: u64,
        bytes: u64,
    ) -> Result<*const u8, Error> {
        match &mut self.place {
            Place::Here => Ok(std::ptr::with_exposed_provenance(offset as usize)),
            Place::Elsewhere { pids, seen } => {
                let pages = match seen.entry((from, file)) {
                    std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::hash_map::Entry::Vacant(entry) => {
                        entry.insert(Mapping::open(pids[from.0], file as i32, len as usize)?)
                    }
                };
                if offset.checked_add(bytes).is_none_or(|end| end > pages.len() as u64) {
                    let what = format!("unexpected message from {from}");
                    return Err(Error::system(what, "bytes outside of its block"));
                }
                // SAFETY: inside the mapping, as just checked.
                Ok(unsafe { pages.start().as_ptr().add(offset as usize).cast_const() })
            }
        }
    }
}

impl Transport for Mailbox {
    fn send(&mut self, to: Rank, span: Span<'_>, patience: &Patience<'_>) -> Result<(), Error> {
        let (here, number) = (self.here, self.posted[to.0]);
        let untaken =
            |this: &Self| number.wrapping_sub(this.inboxes[to.0].lane(here).taken.0.load(Ordering::Acquire));
        self.wait(to, patience, |this| untaken(this) < MAX_UNTAKEN as u32)?;

        let offset = match self.place {
            Place::Here => span.block.start().as_ptr().expose_provenance() + span.offset,
            Place::Elsewhere { .. } => span.offset,
        };
        let lane = self.inboxes[to.0].lane(here);
        let slot = &lane.slots[number as usize % MAX_UNTAKEN];
        slot.file.store(span.block.file().unwrap_or(-1) as u64, Ordering::Relaxed);
        slot.len.store(span.block.len() as u64, Ordering::Relaxed);
        slot.offset.store(offset as u64, Ordering::Relaxed);
        slot.bytes.store(span.bytes as u64, Ordering::Relaxed);
        for (word, value) in slot.call.iter().zip(patience.call.pack()) {
            word.store(value, Ordering::Relaxed);
        }
        self.posted[to.0] = number.wrapping_add(1);
        lane.posted.0.store(self.posted[to.0], Ordering::Release);
        self.inboxes[to.0].ring();
        Ok(())
    }

    fn receive(&mut self, from: Rank, bytes: usize, patience: &Patience<'_>) -> Result<*const u8, Error> {
        let (here, number) = (self.here, self.received[from.0]);
        let arrived =
            |this: &Self| this.inboxes[here.0].lane(from).posted.0.load(Ordering::Acquire) != number;
        self.wait(from, patience, arrived)?;

        let inbox = self.inboxes[here.0].clone();
        let slot = &inbox.lane(from).slots[number as usize % MAX_UNTAKEN];
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        same_call([word(&slot.call[0]), word(&slot.call[1])], from, patience)?;
        let sent = word(&slot.bytes);
        assert_eq!(sent, bytes as u64, "the schedules of {here} and {from} disagree");
        let address = self.locate(from, word(&slot.file), word(&slot.len), word(&slot.offset), sent)?;
        self.received[from.0] = number.wrapping_add(1);
        Ok(address)
    }

    fn release(&mut self, from: Rank) {
        self.inboxes[self.here.0].lane(from).taken.0.store(self.received[from.0], Ordering::Release);
        self.inboxes[from.0].ring();
    }

    fn settle(&mut self, patience: &Patience<'_>) -> Result<(), Error> {
        let here = self.here;
        for peer in (0..self.inboxes.len()).map(Rank).filter(|peer| *peer != here) {
            let posted = self.posted[peer.0];
            self.wait(peer, patience, |this| {
                this.inboxes[peer.0].lane(here).taken.0.load(Ordering::Acquire) == posted
            })?;
        }
        Ok(())
    }

    fn name(&self) -> &'static str {
        match self.place {
            Place::Here => "threads",
            Place::Elsewhere { .. } => "shm",
        }
    }
}
