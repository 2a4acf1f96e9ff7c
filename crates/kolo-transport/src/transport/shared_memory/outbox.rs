//! The ring of memory for short messages that are sent as copies; it belongs to the sender.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::memory::{Block, Pool, Segment};
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

/// Number of bytes of a ring. A copy that does not fit gets its own block.
const CAPACITY: usize = 256 * 1024;
/// Alignment of copies: each starts on its own cache line.
const LINE: usize = 64;

#[derive(Clone)]
struct Spot {
    /// Position in bytes since the ring's first beginning; of a copy outside, the ring's end at that time.
    start: usize,
    /// The block of a copy that did not fit in the ring.
    apart: Option<Arc<Block>>,
}

/// One copy that a peer may still read.
struct Untaken {
    peer: Rank,
    number: u32,
    /// Place of the copy: the ring is in use from there until the peer has taken it. Several peers may
    /// share one copy, which is free when the last of them has taken it.
    spot: Spot,
}

/// The copies that one rank has sent and that other ranks may not have taken yet.
pub(super) struct Outbox {
    ring: ManuallyDrop<Block>,
    /// Pool that receives the memory in the end. Threads of one process share it, so it outlives readers.
    pool: Arc<Pool>,
    /// True if peers are known to have taken all copies.
    pub(super) all_taken: bool,
    /// Number of bytes handed out so far, and given back so far.
    head: usize,
    tail: usize,
    untaken: VecDeque<Untaken>,
    /// The last copy and its [`Segment::content`]: the same bytes sent to several peers are copied once.
    last: Option<(u64, Spot)>,
}

impl Outbox {
    pub(super) fn new(pool: &Arc<Pool>) -> Result<Self, Error> {
        let (ring, pool) = (ManuallyDrop::new(pool.take(CAPACITY)?), pool.clone());
        Ok(Outbox { ring, pool, all_taken: false, head: 0, tail: 0, untaken: VecDeque::new(), last: None })
    }

    /// Copies bytes for message `number` to `peer`; returns the block and the offset of the copy.
    ///
    /// # Safety
    ///
    /// The segment's bytes are readable.
    pub(super) unsafe fn copy(
        &mut self,
        segment: Segment<'_>,
        peer: Rank,
        number: u32,
        taken: impl Fn(Rank, u32) -> bool,
    ) -> Result<(&Block, usize), Error> {
        let Segment { start, bytes, content, .. } = segment;
        let again = self.last.as_ref().filter(|(last, _)| *last == content);
        let again = again.map(|(_, spot)| spot.clone());
        let is_copied = again.is_some();
        let spot = match again {
            Some(spot) => spot,
            None => self.place(bytes, taken)?,
        };
        if !is_copied && let Some((_, last)) = self.last.replace((content, spot.clone())) {
            self.release(last);
        }
        self.untaken.push_back(Untaken { peer, number, spot });
        let spot = &self.untaken.back().expect("it has just been put there").spot;
        let (block, offset) = match &spot.apart {
            Some(block) => (&**block, 0),
            None => (&*self.ring, spot.start % CAPACITY),
        };
        if !is_copied {
            assert!(offset + bytes <= block.len(), "a copy fits where it is put");
            // SAFETY: inside the block, which nobody reads before the message is posted; never overlaps
            // the source, which lies in a buffer or a slice.
            unsafe { std::ptr::copy_nonoverlapping(start, block.start().as_ptr().add(offset), bytes) };
        }
        Ok((block, offset))
    }

    /// Finds room for a copy: in the ring, or in its own block.
    fn place(&mut self, bytes: usize, taken: impl Fn(Rank, u32) -> bool) -> Result<Spot, Error> {
        let size = bytes.next_multiple_of(LINE);
        if let Some(start) = self.fit(size) {
            return Ok(Spot { start, apart: None });
        }
        // Peers' memory is read only when room runs out.
        self.reclaim(taken);
        Ok(match self.fit(size) {
            Some(start) => Spot { start, apart: None },
            None => Spot { start: self.head, apart: Some(Arc::new(self.pool.take(bytes)?)) },
        })
    }

    /// Reserves room in the ring and returns its position since the ring's first beginning.
    fn fit(&mut self, size: usize) -> Option<usize> {
        let mut start = self.head;
        if start % CAPACITY + size > CAPACITY {
            start = start.next_multiple_of(CAPACITY);
        }
        if size > CAPACITY || start + size - self.tail > CAPACITY {
            return None;
        }
        self.head = start + size;
        Some(start)
    }

    /// Frees the copies that peers have taken.
    fn reclaim(&mut self, taken: impl Fn(Rank, u32) -> bool) {
        while let Some(first) = self.untaken.pop_front_if(|untaken| taken(untaken.peer, untaken.number)) {
            self.release(first.spot);
        }
        self.tail = self.untaken.front().map_or(self.head, |oldest| oldest.spot.start);
    }

    /// Drops a reference to a copy; the last one returns a block to the pool.
    fn release(&self, spot: Spot) {
        if let Some(block) = spot.apart.and_then(Arc::into_inner) {
            self.pool.give_back(block);
        }
    }
}

/// Peers may still read untaken copies, so their memory is not reused and stays until the pool is dropped.
impl Drop for Outbox {
    fn drop(&mut self) {
        let last = self.last.take().map(|(_, spot)| spot);
        let spots = self.untaken.drain(..).map(|untaken| untaken.spot).chain(last);
        let apart: Vec<Block> = spots.filter_map(|spot| Arc::into_inner(spot.apart?)).collect();
        // SAFETY: the ring is not used again.
        let ring = unsafe { ManuallyDrop::take(&mut self.ring) };
        for block in std::iter::once(ring).chain(apart) {
            if self.all_taken { self.pool.give_back(block) } else { self.pool.abandon(block) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Backing;

    /// Copies for `peer`; returns the address of the copy.
    fn copy(
        outbox: &mut Outbox,
        (bytes, content): (&[u8], u64),
        peer: usize,
        number: u32,
        taken: impl Fn(Rank, u32) -> bool,
    ) -> *const u8 {
        let segment = Segment { start: bytes.as_ptr(), bytes: bytes.len(), place: None, content };
        // SAFETY: a slice is readable.
        let (block, offset) = unsafe { outbox.copy(segment, Rank(peer), number, taken).unwrap() };
        // SAFETY: the copy lies inside its block.
        unsafe { block.start().as_ptr().add(offset).cast_const() }
    }

    #[test]
    fn a_copy_for_several_peers_stays_until_all_have_taken_it() {
        let mut outbox = Outbox::new(&Pool::new(Backing::Heap)).unwrap();
        let (first, others) = (vec![1u8; CAPACITY / 2], vec![2u8; CAPACITY / 2]);
        let first_copy = copy(&mut outbox, (&first, 1), 1, 0, |_, _| false);
        assert_eq!(copy(&mut outbox, (&first, 1), 2, 0, |_, _| false), first_copy, "copied once for both");
        // One peer has taken its first message, the other has not.
        let quick = |peer: Rank, number: u32| peer == Rank(1) && number == 0;
        for number in 1..4 {
            copy(&mut outbox, (&others, 1 + u64::from(number)), 1, number, quick);
            // SAFETY: the ring lives as long as the outbox.
            let kept = unsafe { std::slice::from_raw_parts(first_copy, first.len()) };
            assert!(kept.iter().all(|byte| *byte == 1), "overwritten by message {number}");
        }
        assert_eq!(copy(&mut outbox, (&others, 9), 2, 1, |_, _| true), first_copy, "free when both have");
    }
}
