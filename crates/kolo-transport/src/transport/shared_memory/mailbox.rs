//! The transport of ranks that can see each other's memory.
//!
//! Every rank has an inbox in memory that all others have mapped: a bell, and a lane for each sender. A
//! message is a slot in a lane with the place of the bytes, and the receiver reads them there. Bytes in a
//! block of the group are not copied. Bytes that may change before they are taken, or that peers cannot
//! read, are copied to the [`Outbox`]; a few bytes are copied into the slot itself.
//!
//! A waiting rank spins for a short time, then sleeps on the bell (a futex). The spin grows while waits
//! turn out to be short and shrinks while they turn out to be long. So two ranks on two idle cores answer
//! in a fraction of a microsecond, and a rank whose core is needed for training gives it up at once.
//!
//! With more ranks than cores, spinning would keep the awaited rank from its core. A rank then steps
//! behind the others in the scheduler's queue instead (`sched_yield`), which takes a microsecond; waking
//! a sleeper takes tens. If other programs get the core that way, it sleeps. If the peer was on another core
//! when it waited last, the rank first looks a few times without yielding: a yield costs two process
//! switches.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::inbox::Inbox;
use super::lane::{IN_SLOT, Slot, WITHIN, write_within};
use super::outbox::Outbox;
use super::sync::{AtomicU64, Ordering, SLOTS};
use crate::memory::{Block, Mapping, OpenError, PeerMemory, Place, Pool, Purpose, Segment, SharedFile};
use crate::transport::adaptive_spin::AdaptiveSpin;
use crate::transport::interface::{InPlace, Progress, SHORT_SLEEP, Transport, same_call, same_length};
use crate::wait::WaitContext;
use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::Rank;

pub(super) enum Peers {
    /// In this process: a slot holds the address.
    SameProcess,
    /// In other processes: a slot holds file, block and offset. Blocks are mapped when first seen.
    OtherProcesses {
        pids: Vec<u32>,
        seen: HashMap<(Rank, i32, u64), Arc<Mapping>>,
        /// Blocks of this rank that the peers have mapped, by file and start.
        shown: HashSet<(i32, u64)>,
    },
}

impl Peers {
    /// Creates the peers with these process numbers, in rank order.
    pub(super) fn of_processes(pids: Vec<u32>) -> Self {
        Peers::OtherProcesses { pids, seen: HashMap::new(), shown: HashSet::new() }
    }
}

/// Minimum and maximum iterations of the spin, some 10 ns each.
const SPIN: (u32, u32) = (16, 4096);
/// Minimum and maximum number of yields before sleeping, if there are more ranks than cores.
const YIELDS: (u32, u32) = (4, 256);
/// Number of looks at a peer on another core before a yield: less than half a microsecond. With none, and
/// with twice as many, 4 bytes between 4 ranks on 2 cores take longer (docs/notes/benchmarks.md).
const LOOKS: u32 = 24;

/// This rank's own counts of the messages in a peer's two lanes.
#[derive(Clone, Copy, Default)]
struct Counts {
    posted: u32,
    /// Number of posted messages that the peer had taken at the last check; a check costs time.
    seen_taken: u32,
    /// Number of posted messages up to the last that refers to a buffer; `None` once it is taken.
    referring: Option<u32>,
    received: u32,
}

/// One rank's inbox, and its access to those of its peers.
pub(crate) struct Mailbox {
    here: Rank,
    /// Inbox of each rank that shares memory with this one.
    inboxes: Vec<Option<Inbox>>,
    memory: Peers,
    counts: Vec<Counts>,
    outbox: Outbox,
    /// True if there are more ranks than cores.
    crowded: bool,
    spin: AdaptiveSpin,
}

impl Mailbox {
    /// Creates the mailbox of rank `here`. `inboxes` has those of all ranks that share memory with it,
    /// including its own. Copies lie in memory of `copies`.
    pub(super) fn new(
        here: Rank,
        inboxes: &[Option<Arc<Mapping>>],
        memory: Peers,
        copies: &Arc<Pool>,
        liveness: &Liveness,
    ) -> Result<Self, Error> {
        let inbox = |pages: &Option<Arc<Mapping>>| pages.clone().map(|pages| Inbox { pages });
        let inboxes: Vec<Option<Inbox>> = inboxes.iter().map(inbox).collect();
        let own = inboxes[here.0].as_ref().expect("a rank has an inbox of its own");
        let pages = Arc::downgrade(&own.pages);
        liveness.register_waker(Box::new(move || match pages.upgrade() {
            Some(pages) => {
                Inbox { pages }.bell().ring();
                true
            }
            None => false,
        }));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let crowded = inboxes.iter().flatten().count() > cores;
        let outbox = Outbox::new(copies)?;
        let counts = vec![Counts::default(); inboxes.len()];
        let spin = if crowded {
            AdaptiveSpin::new(YIELDS.0, YIELDS.1, YIELDS.1)
        } else {
            AdaptiveSpin::new(SPIN.0, SPIN.1, 256)
        };
        Ok(Mailbox { here, inboxes, memory, counts, outbox, crowded, spin })
    }

    fn inbox(&self, of: Rank) -> &Inbox {
        self.inboxes[of.0].as_ref().expect("messages go by shared memory only where it is shared")
    }

    /// Number of this rank's messages that a peer has taken.
    fn taken(&self, by: Rank) -> u32 {
        self.inbox(by).lane(self.here).taken()
    }

    /// Returns true if a peer has taken all messages and no longer reads any copy.
    fn has_taken_all(&self, peer: Rank) -> bool {
        let (own, inbox) = (peer == self.here, &self.inboxes[peer.0]);
        own || inbox.is_none() || self.taken(peer) == self.counts[peer.0].posted
    }

    /// Waits until `ready` returns true; it reads memory that `peer` writes before it rings this rank's
    /// bell. Meanwhile the group's other transports make progress.
    fn wait_until(
        &mut self,
        peer: Rank,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
        ready: impl Fn(&Self) -> bool,
    ) -> Result<(), Error> {
        for turn in 0..self.spin.limit() {
            if ready(self) {
                self.spin.came_after(turn);
                return Ok(());
            }
            if !self.crowded {
                std::hint::spin_loop();
            } else if self.comes_from_another_core(peer, &ready) {
                self.spin.came_after(turn);
                return Ok(());
            } else if !self.spin.step_behind() {
                break;
            }
        }
        self.spin.gave_up();
        let asleep = Instant::now();
        let _note = wait.waiting(peer);
        let own = self.inbox(self.here).clone();
        let bell = own.bell();
        loop {
            let more_to_send = others.progress(wait)?;
            let rings = bell.about_to_sleep();
            // The order matters: a peer may finish its part and leave, and its departure may be seen
            // before its part.
            let verdict = wait.check(peer);
            if ready(self) {
                break;
            }
            if verdict.is_ok() {
                bell.sleep(rings, if more_to_send { SHORT_SLEEP } else { wait.sleep_limit() });
                continue;
            }
            bell.awake();
            return verdict;
        }
        bell.awake();
        self.spin.slept(asleep.elapsed());
        Ok(())
    }

    /// Returns true if `ready` turns true within a moment. Looks only if the peer waited last on another
    /// core: a peer on the same core writes nothing before this rank yields.
    fn comes_from_another_core(&self, peer: Rank, ready: &impl Fn(&Self) -> bool) -> bool {
        let core = rustix::thread::sched_getcpu() as u32;
        self.inbox(self.here).bell().waits_on(core);
        let looks = if self.inbox(peer).bell().waited_on(core) { 0 } else { LOOKS };
        (0..looks).any(|_| {
            std::hint::spin_loop();
            ready(self)
        })
    }

    /// Returns the address at which this process can read `bytes` bytes at a place in a peer's memory,
    /// and their pages if these are another process's.
    fn locate(
        &mut self,
        from: Rank,
        place: Place,
        bytes: u64,
        wait: &WaitContext<'_>,
    ) -> Result<(NonNull<u8>, Option<&Arc<Mapping>>), Error> {
        let Place { file, start, len, offset } = place;
        let outside = || Error::Untrusted {
            rank: wait.name(from),
            cause: "a message lies outside of its block".into(),
        };
        match &mut self.memory {
            Peers::SameProcess => {
                let address = std::ptr::with_exposed_provenance_mut(offset as usize);
                Ok((NonNull::new(address).ok_or_else(outside)?, None))
            }
            Peers::OtherProcesses { pids, seen, .. } => {
                let pages = match seen.entry((from, file, start)) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => {
                        let pages =
                            SharedFile::map_of(pids[from.0], file, Purpose::Blocks, start, len as usize);
                        entry.insert(Arc::new(pages.map_err(|cause| unmapped(from, cause, wait))?))
                    }
                };
                if offset.checked_add(bytes).is_none_or(|end| end > pages.len() as u64) {
                    return Err(outside());
                }
                // SAFETY: inside the mapping, as just checked.
                let start = unsafe { pages.start().add(offset as usize) };
                Ok((start, Some(pages)))
            }
        }
    }
}

impl Transport for Mailbox {
    fn send(
        &mut self,
        to: Rank,
        segment: Segment<'_>,
        copied: bool,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<(), Error> {
        let Counts { posted: number, seen_taken, .. } = self.counts[to.0];
        if number.wrapping_sub(seen_taken) >= SLOTS as u32 {
            let room = |this: &Self| number.wrapping_sub(this.taken(to)) < SLOTS as u32;
            self.wait_until(to, wait, others, room)?;
            self.counts[to.0].seen_taken = self.taken(to);
        }

        let (inboxes, here) = (&self.inboxes, self.here);
        let lane =
            inboxes[to.0].as_ref().expect("messages go by shared memory only where it is shared").lane(here);
        let slot = lane.slot(number);
        let place = segment.place.filter(|_| !copied);
        match place {
            Some((block, offset)) => {
                self.counts[to.0].referring = Some(number.wrapping_add(1));
                describe(block, offset, &self.memory, slot);
            }
            None if segment.bytes <= WITHIN => {
                // SAFETY: the running collective holds a segment's bytes.
                write_within(slot, unsafe { std::slice::from_raw_parts(segment.start, segment.bytes) });
                slot.file.store(IN_SLOT, Ordering::Relaxed);
            }
            None => {
                let taken = |peer: Rank, number: u32| {
                    let lane = inboxes[peer.0].as_ref().expect("sent before").lane(here);
                    // At most `SLOTS` messages from the count on are untaken, however long ago the
                    // message was, because counters wrap around.
                    number.wrapping_sub(lane.taken()) >= SLOTS as u32
                };
                // SAFETY: the running collective holds a segment's bytes.
                let (block, offset) = unsafe { self.outbox.copy(segment, to, number, taken)? };
                describe(block, offset, &self.memory, slot);
            }
        }
        slot.bytes.store(segment.bytes as u64, Ordering::Relaxed);
        for (word, value) in slot.call.iter().zip(wait.call.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.counts[to.0].posted = number.wrapping_add(1);
        lane.post(number, self.inbox(to).bell());
        Ok(())
    }

    fn receive(
        &mut self,
        from: Rank,
        bytes: usize,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<*const u8, Error> {
        let (here, number) = (self.here, self.counts[from.0].received);
        self.wait_until(from, wait, others, |this| this.inbox(here).lane(from).has(number))?;

        let slot = self.inbox(here).lane(from).slot(number);
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        same_call([word(&slot.call[0]), word(&slot.call[1])], from, wait)?;
        let sent = word(&slot.bytes);
        same_length(sent, bytes, from, wait)?;
        let (len, offset, start) = (word(&slot.len), word(&slot.offset), word(&slot.within[0]));
        let address = match slot.file.load(Ordering::Relaxed) {
            IN_SLOT if bytes <= WITHIN => slot.within.as_ptr().cast(),
            IN_SLOT => {
                let cause = format!("a message of {bytes} bytes lies in a slot of {WITHIN}");
                return Err(Error::Untrusted { rank: wait.name(from), cause });
            }
            file => {
                let place = Place { file, start, len, offset };
                self.locate(from, place, sent, wait)?.0.as_ptr().cast_const()
            }
        };
        self.counts[from.0].received = number.wrapping_add(1);
        Ok(address)
    }

    fn release(&mut self, from: Rank) {
        let received = self.counts[from.0].received;
        self.inbox(self.here).lane(from).take(received, self.inbox(from).bell());
    }

    fn settle(&mut self, wait: &WaitContext<'_>, others: &mut dyn Progress) -> Result<(), Error> {
        for peer in (0..self.inboxes.len()).map(Rank) {
            // Looking at the peer's memory costs as much as a short message.
            let Some(referring) = self.counts[peer.0].referring else { continue };
            // Counters wrap around; the difference does not, because few messages are untaken.
            let over = |this: &Self| this.taken(peer).wrapping_sub(referring) as i32 >= 0;
            self.wait_until(peer, wait, others, over)?;
            self.counts[peer.0].referring = None;
        }
        Ok(())
    }

    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        Some(self)
    }

    /// Waits, at most until `until`, until the peers have taken even the copies, because peers could not
    /// read them after the end of this process.
    fn drain(&mut self, gone: &dyn Fn(Rank) -> bool, until: Instant) {
        let is_awaited = |peer: Rank| !self.has_taken_all(peer) && !gone(peer);
        while (0..self.inboxes.len()).map(Rank).any(is_awaited) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl InPlace for Mailbox {
    fn show(&mut self, segment: Segment<'_>) -> Option<(Place, bool)> {
        let (block, offset) = segment.place?;
        let place = place_of(block, offset, &self.memory);
        match &mut self.memory {
            Peers::SameProcess => Some((place, false)),
            Peers::OtherProcesses { shown, .. } => {
                block.file()?;
                Some((place, shown.insert((place.file, place.start))))
            }
        }
    }

    fn find(
        &mut self,
        from: Rank,
        place: Place,
        bytes: u64,
        wait: &WaitContext<'_>,
    ) -> Result<PeerMemory, Error> {
        let (start, pages) = self.locate(from, place, bytes, wait)?;
        Ok(PeerMemory::new(start, pages.cloned()))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if (0..self.inboxes.len()).all(|peer| self.has_taken_all(Rank(peer))) {
            self.outbox.all_taken = true;
        }
    }
}

/// Error for a peer's block that cannot be mapped: the peer is gone or untrusted, or a limit is reached.
fn unmapped(from: Rank, cause: OpenError, wait: &WaitContext<'_>) -> Error {
    let rank = wait.name(from);
    match cause {
        OpenError::Gone if wait.liveness.has_left(rank) => {
            Error::Left { rank, during: wait.call.to_string() }
        }
        OpenError::Gone => wait.liveness.failure_or(Error::Died { rank }),
        OpenError::Foreign(cause) => Error::Untrusted { rank, cause },
        cause @ OpenError::Refused(_) => cause.of_rank(rank),
    }
}

fn place_of(block: &Block, offset: usize, memory: &Peers) -> Place {
    let offset = match memory {
        Peers::SameProcess => block.start().as_ptr().expose_provenance() + offset,
        Peers::OtherProcesses { .. } => offset,
    };
    let (file, start) = block.file().unwrap_or((-1, 0));
    Place { file, start, len: block.len() as u64, offset: offset as u64 }
}

fn describe(block: &Block, offset: usize, memory: &Peers, slot: &Slot) {
    let Place { file, start, len, offset } = place_of(block, offset, memory);
    slot.file.store(file, Ordering::Relaxed);
    slot.within[0].store(start, Ordering::Relaxed);
    slot.len.store(len, Ordering::Relaxed);
    slot.offset.store(offset, Ordering::Relaxed);
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
