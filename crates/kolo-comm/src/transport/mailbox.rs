//! The transport of ranks that can see each other's memory.
//!
//! Every rank has an inbox in memory that all others have mapped: a bell, and a lane for each sender. A message is
//! a slot in a lane that says where the bytes lie; the receiver reads them there. Nothing is copied.
//!
//! Waiting: a short spin, then sleep on the bell (a futex). The spin grows while waits turn out to be short and
//! shrinks while they turn out to be long. So two ranks on two idle cores answer in a fraction of a microsecond, and a
//! rank whose core is needed for training gives it up at once. Where there are more ranks than cores, spinning would keep
//! the one waited for from its core: there a rank steps behind the others in the scheduler's queue instead
//! (`sched_yield`), which takes a microsecond where waking a sleeper takes tens.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::thread::futex;

pub(crate) use super::inbox::inbox_len;
use super::inbox::{IN_SLOT, Inbox, Slot, WITHIN, write_within};
use super::outbox::{self, Outbox};
use super::tries::{SHORT, Tries};
use super::{Busy, Idle, Span, Transport, same_call, same_length};
use crate::memory::{Block, Mapping};
use crate::wait::Patience;
use kolo_rendezvous::Error;
use kolo_rendezvous::Liveness;
use kolo_schedule::MAX_UNTAKEN;
use kolo_schedule::Rank;

/// Where the peers' blocks are.
enum Place {
    /// In this process: a slot holds the address.
    Here,
    /// In other processes: a slot holds file and offset. Blocks are mapped when first seen.
    Elsewhere { pids: Vec<u32>, seen: HashMap<(Rank, i32), Mapping> },
}

/// Iterations of the spin, some 10 ns each: the least and the most.
const SPIN: (u32, u32) = (16, 4096);
/// Turns given up to others before sleeping, where there are more ranks than cores: the least and the most.
const YIELDS: (u32, u32) = (4, 256);

/// The lane of a peer, as far as this rank's own counts go.
#[derive(Clone, Copy, Default)]
struct Counts {
    posted: u32,
    /// Of the posted ones, how many the peer has taken when last looked at: its memory is looked at only when needed.
    seen_taken: u32,
    /// Of the posted ones, how many until the last one that refers to a buffer; none if the peer has taken it.
    referring: Option<u32>,
    received: u32,
}

/// See the module's text.
pub(crate) struct Mailbox {
    here: Rank,
    /// One for each rank that shares memory with this one.
    inboxes: Vec<Option<Inbox>>,
    place: Place,
    counts: Vec<Counts>,
    outbox: Outbox,
    /// More ranks than cores.
    crowded: bool,
    spin: Tries,
}

impl Mailbox {
    /// Mailboxes of ranks that are threads of this process; `inboxes` has one mapping for each rank.
    pub(crate) fn within_process(
        here: Rank,
        inboxes: &[Option<Arc<Mapping>>],
        liveness: &Liveness,
    ) -> Result<Self, Error> {
        Self::new(here, inboxes, Place::Here, liveness)
    }

    /// Mailboxes of ranks that are processes of this host, `pids` their numbers; ranks without an inbox are elsewhere.
    pub(crate) fn across_processes(
        here: Rank,
        inboxes: &[Option<Arc<Mapping>>],
        pids: Vec<u32>,
        liveness: &Liveness,
    ) -> Result<Self, Error> {
        Self::new(here, inboxes, Place::Elsewhere { pids, seen: HashMap::new() }, liveness)
    }

    fn new(
        here: Rank,
        inboxes: &[Option<Arc<Mapping>>],
        place: Place,
        liveness: &Liveness,
    ) -> Result<Self, Error> {
        let inbox = |pages: &Option<Arc<Mapping>>| pages.clone().map(|pages| Inbox { pages });
        let inboxes: Vec<Option<Inbox>> = inboxes.iter().map(inbox).collect();
        let own = inboxes[here.0].as_ref().expect("a rank has an inbox of its own");
        let pages = Arc::downgrade(&own.pages);
        liveness.register_waker(Box::new(move || match pages.upgrade() {
            Some(pages) => {
                Inbox { pages }.ring();
                true
            }
            None => false,
        }));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let crowded = inboxes.iter().flatten().count() > cores;
        let outbox = Outbox::new(&outbox::pool(matches!(place, Place::Here)))?;
        let counts = vec![Counts::default(); inboxes.len()];
        let spin =
            if crowded { Tries::new(YIELDS.0, YIELDS.1, YIELDS.1) } else { Tries::new(SPIN.0, SPIN.1, 256) };
        Ok(Mailbox { here, inboxes, place, counts, outbox, crowded, spin })
    }

    fn inbox(&self, of: Rank) -> &Inbox {
        self.inboxes[of.0].as_ref().expect("messages go by shared memory only where it is shared")
    }

    /// How many of this rank's messages a peer has taken.
    fn taken(&self, by: Rank) -> u32 {
        self.inbox(by).lane(self.here).taken.0.load(Ordering::Acquire)
    }

    /// Waits until `ready`, which looks at memory that `peer` writes before it rings this rank's bell. Meanwhile
    /// `idle` goes on with other work.
    fn wait(
        &mut self,
        peer: Rank,
        patience: &Patience<'_>,
        idle: &mut dyn Idle,
        ready: impl Fn(&Self) -> bool,
    ) -> Result<(), Error> {
        for turn in 0..self.spin.limit() {
            if ready(self) {
                self.spin.came_after(turn);
                return Ok(());
            }
            if self.crowded { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        self.spin.gave_up();
        let asleep = Instant::now();
        let _note = patience.waiting(peer);
        let own = self.inbox(self.here).clone();
        let bell = own.bell();
        loop {
            let busy = idle.go_on(patience)?;
            bell.sleeping.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let rings = bell.rings.load(Ordering::SeqCst);
            // In this order: a peer may finish its part, leave, and be seen to have left before its part is.
            let verdict = patience.check(peer);
            if ready(self) {
                break;
            }
            if verdict.is_ok() {
                let nap = if busy == Busy::Yes { SHORT } else { patience.nap() };
                let nap = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
                // Woken, rung meanwhile, interrupted or timed out: all lead to another look.
                let _ = futex::wait(&bell.rings, futex::Flags::empty(), rings, Some(&nap));
                continue;
            }
            bell.sleeping.store(0, Ordering::SeqCst);
            return verdict;
        }
        bell.sleeping.store(0, Ordering::SeqCst);
        self.spin.slept(asleep.elapsed());
        Ok(())
    }

    /// The address at which this process can read what a slot describes.
    fn locate(
        &mut self,
        from: Rank,
        file: i32,
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
                        entry.insert(Mapping::open(pids[from.0], file, len as usize)?)
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

/// As [`Transport`], with other work to go on with while waiting.
impl Mailbox {
    pub(super) fn send(
        &mut self,
        to: Rank,
        span: Span<'_>,
        copied: bool,
        patience: &Patience<'_>,
        idle: &mut dyn Idle,
    ) -> Result<(), Error> {
        let Counts { posted: number, seen_taken, .. } = self.counts[to.0];
        if number.wrapping_sub(seen_taken) >= MAX_UNTAKEN as u32 {
            let room = |this: &Self| number.wrapping_sub(this.taken(to)) < MAX_UNTAKEN as u32;
            self.wait(to, patience, idle, room)?;
            self.counts[to.0].seen_taken = self.taken(to);
        }

        let (inboxes, here) = (&self.inboxes, self.here);
        let lane =
            inboxes[to.0].as_ref().expect("messages go by shared memory only where it is shared").lane(here);
        let slot = &lane.slots[number as usize % MAX_UNTAKEN];
        let (block, offset) = if copied && span.bytes <= WITHIN {
            // SAFETY: a span lies inside its block, which the running collective holds.
            write_within(slot, unsafe { std::slice::from_raw_parts(span.start(), span.bytes) });
            (span.block, span.offset)
        } else if copied {
            let taken = |peer: Rank, number: u32| {
                let lane = inboxes[peer.0].as_ref().expect("sent before").lane(here);
                // Untaken are at most so many, from the count on; however long ago the message was, counters wrap around.
                number.wrapping_sub(lane.taken.0.load(Ordering::Acquire)) >= MAX_UNTAKEN as u32
            };
            // SAFETY: a span lies inside its block, which the running collective holds.
            unsafe { self.outbox.copy(span.start(), span.bytes, to, number, taken)? }
        } else {
            self.outbox.forget_last();
            self.counts[to.0].referring = Some(number.wrapping_add(1));
            (span.block, span.offset)
        };
        if copied && span.bytes <= WITHIN {
            slot.file.store(IN_SLOT, Ordering::Relaxed);
        } else {
            describe(block, offset, &self.place, slot);
        }
        slot.bytes.store(span.bytes as u64, Ordering::Relaxed);
        for (word, value) in slot.call.iter().zip(patience.call.pack()) {
            word.store(value, Ordering::Relaxed);
        }
        self.counts[to.0].posted = number.wrapping_add(1);
        slot.posted.store(number.wrapping_add(1), Ordering::Release);
        self.inbox(to).ring();
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        from: Rank,
        bytes: usize,
        patience: &Patience<'_>,
        idle: &mut dyn Idle,
    ) -> Result<*const u8, Error> {
        self.outbox.forget_last();
        let (here, number) = (self.here, self.counts[from.0].received);
        let arrived = |this: &Self| {
            let slot = &this.inbox(here).lane(from).slots[number as usize % MAX_UNTAKEN];
            slot.posted.load(Ordering::Acquire) == number.wrapping_add(1)
        };
        self.wait(from, patience, idle, arrived)?;

        let slot = &self.inbox(here).lane(from).slots[number as usize % MAX_UNTAKEN];
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        same_call([word(&slot.call[0]), word(&slot.call[1])], from, patience)?;
        let sent = word(&slot.bytes);
        same_length(sent, bytes, from, patience)?;
        let file = slot.file.load(Ordering::Relaxed);
        let (len, offset, within) = (word(&slot.len), word(&slot.offset), slot.within.as_ptr().cast());
        let address = match file {
            IN_SLOT => within,
            file => self.locate(from, file, len, offset, sent)?,
        };
        self.counts[from.0].received = number.wrapping_add(1);
        Ok(address)
    }

    pub(super) fn release(&mut self, from: Rank) {
        self.inbox(self.here).lane(from).taken.0.store(self.counts[from.0].received, Ordering::Release);
        self.inbox(from).ring();
    }

    pub(super) fn settle(&mut self, patience: &Patience<'_>, idle: &mut dyn Idle) -> Result<(), Error> {
        self.outbox.forget_last();
        for peer in (0..self.inboxes.len()).map(Rank) {
            // Looking costs as much as a short message does.
            let Some(referring) = self.counts[peer.0].referring else { continue };
            // Counters wrap around; the difference does not, because few messages are untaken.
            let over = |this: &Self| this.taken(peer).wrapping_sub(referring) as i32 >= 0;
            self.wait(peer, patience, idle, over)?;
            self.counts[peer.0].referring = None;
        }
        Ok(())
    }

    /// Waits, at most until `until`, until the peers have taken even the copies: they could not read them any more if
    /// this process ended.
    pub(super) fn drain(&self, gone: &dyn Fn(Rank) -> bool, until: Instant) {
        let untaken = |peer: usize| {
            peer != self.here.0
                && self.inboxes[peer].is_some()
                && self.taken(Rank(peer)) != self.counts[peer].posted
                && !gone(Rank(peer))
        };
        while (0..self.inboxes.len()).any(untaken) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Notes in a slot where bytes lie.
fn describe(block: &Block, offset: usize, place: &Place, slot: &Slot) {
    let offset = match place {
        Place::Here => block.start().as_ptr().expose_provenance() + offset,
        Place::Elsewhere { .. } => offset,
    };
    slot.file.store(block.file().unwrap_or(-1), Ordering::Relaxed);
    slot.len.store(block.len() as u64, Ordering::Relaxed);
    slot.offset.store(offset as u64, Ordering::Relaxed);
}

/// Nothing else to do.
struct Nothing;

impl Idle for Nothing {
    fn go_on(&mut self, _: &Patience<'_>) -> Result<Busy, Error> {
        Ok(Busy::No)
    }
}

impl Transport for Mailbox {
    fn send(&mut self, to: Rank, span: Span<'_>, copied: bool, patience: &Patience<'_>) -> Result<(), Error> {
        self.send(to, span, copied, patience, &mut Nothing)
    }

    fn receive(&mut self, from: Rank, bytes: usize, patience: &Patience<'_>) -> Result<*const u8, Error> {
        self.receive(from, bytes, patience, &mut Nothing)
    }

    fn release(&mut self, from: Rank) {
        self.release(from);
    }

    fn settle(&mut self, patience: &Patience<'_>) -> Result<(), Error> {
        self.settle(patience, &mut Nothing)
    }

    fn drain(&mut self, gone: &dyn Fn(Rank) -> bool, until: Instant) {
        Mailbox::drain(self, gone, until);
    }

    fn name(&self) -> &'static str {
        match self.place {
            Place::Here => "threads",
            Place::Elsewhere { .. } => "shm",
        }
    }
}
