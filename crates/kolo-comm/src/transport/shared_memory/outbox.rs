//! Where short messages lie that are sent as copies: a ring of shared memory that belongs to the sender.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::memory::{Backing, Block, Pool};
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

/// Bytes of a ring. What finds no room goes to a block of its own.
const CAPACITY: usize = 256 * 1024;
/// Copies start on cache lines of their own.
const LINE: usize = 64;

/// One copy that a peer may still read.
struct Lent {
    peer: Rank,
    /// The number of the message.
    number: u32,
    /// Where the ring is in use from, until this has been taken. Copies of one place for several peers start
    /// alike: it is free when the last of them has been taken.
    start: usize,
    block: Option<Block>,
}

/// The copies that one rank has sent and that others may not have taken yet.
pub(super) struct Outbox {
    ring: Block,
    pool: Arc<Pool>,
    /// Bytes handed out so far, and given back so far.
    head: usize,
    tail: usize,
    lent: VecDeque<Lent>,
    /// The copy made last and its source: the same bytes sent to several peers are copied once.
    last: Option<(*const u8, usize, Spot)>,
}

// SAFETY: the pointer is only compared, never followed.
unsafe impl Send for Outbox {}

/// Where a copy lies.
#[derive(Clone, Copy)]
enum Spot {
    /// In the ring, from so many bytes after its first beginning.
    Ring { start: usize },
    /// In the block that was lent last.
    Apart,
}

impl Outbox {
    pub(super) fn new(pool: &Arc<Pool>) -> Result<Self, Error> {
        let ring = pool.take(CAPACITY)?;
        Ok(Outbox { ring, pool: pool.clone(), head: 0, tail: 0, lent: VecDeque::new(), last: None })
    }

    /// Copies bytes for message `number` to `peer`; returns the block and the offset where they lie.
    ///
    /// # Safety
    ///
    /// `bytes` bytes are readable at `start`.
    pub(super) unsafe fn copy(
        &mut self,
        start: *const u8,
        bytes: usize,
        peer: Rank,
        number: u32,
        taken: impl Fn(Rank, u32) -> bool,
    ) -> Result<(&Block, usize), Error> {
        let again = self.last.filter(|(last, len, _)| (*last, *len) == (start, bytes)).map(|(.., spot)| spot);
        let spot = match again {
            Some(spot @ Spot::Ring { .. }) => spot,
            _ => self.place(bytes, taken),
        };
        let (block, start_in_ring) = match spot {
            Spot::Ring { start } => (None, start),
            Spot::Apart => (Some(self.pool.take(bytes)?), self.head),
        };
        self.lent.push_back(Lent { peer, number, start: start_in_ring, block });
        let (block, offset) = match (spot, self.lent.back().and_then(|lent| lent.block.as_ref())) {
            (Spot::Apart, Some(block)) => (block, 0),
            (Spot::Ring { start }, _) => (&self.ring, start % CAPACITY),
            (Spot::Apart, None) => unreachable!("a copy apart has its block"),
        };
        if !matches!(again, Some(Spot::Ring { .. })) {
            assert!(offset + bytes <= block.len(), "a copy fits where it is put");
            // SAFETY: inside the block, which nobody reads before the message is posted; never overlaps the
            // source, which lies in a buffer.
            unsafe { std::ptr::copy_nonoverlapping(start, block.start().as_ptr().add(offset), bytes) };
        }
        self.last = Some((start, bytes, spot));
        Ok((block, offset))
    }

    /// What was copied last may change from now on.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }

    /// Finds room in the ring.
    fn place(&mut self, bytes: usize, taken: impl Fn(Rank, u32) -> bool) -> Spot {
        let size = bytes.next_multiple_of(LINE);
        // Peers' memory is looked at only when room runs out.
        self.fit(size)
            .or_else(|| {
                self.reclaim(taken);
                self.fit(size)
            })
            .unwrap_or(Spot::Apart)
    }

    fn fit(&mut self, size: usize) -> Option<Spot> {
        let mut start = self.head;
        if start % CAPACITY + size > CAPACITY {
            start = start.next_multiple_of(CAPACITY);
        }
        if size > CAPACITY || start + size - self.tail > CAPACITY {
            return None;
        }
        self.head = start + size;
        Some(Spot::Ring { start })
    }

    /// Takes back what has been read.
    fn reclaim(&mut self, taken: impl Fn(Rank, u32) -> bool) {
        while let Some(first) = self.lent.pop_front_if(|lent| taken(lent.peer, lent.number)) {
            first.block.into_iter().for_each(|block| self.pool.give_back(block));
        }
        self.tail = self.lent.front().map_or(self.head, |oldest| oldest.start);
    }
}

/// Blocks of heap memory serve threads of one process; others have to map them.
pub(super) fn pool(within_process: bool) -> Arc<Pool> {
    Pool::new(if within_process { Backing::Heap } else { Backing::Shared })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies for `peer`; says where the copy lies.
    fn copy(
        outbox: &mut Outbox,
        bytes: &[u8],
        peer: usize,
        number: u32,
        taken: impl Fn(Rank, u32) -> bool,
    ) -> *const u8 {
        // SAFETY: a slice is readable.
        let (block, offset) =
            unsafe { outbox.copy(bytes.as_ptr(), bytes.len(), Rank(peer), number, taken).unwrap() };
        // SAFETY: the copy lies inside its block.
        unsafe { block.start().as_ptr().add(offset).cast_const() }
    }

    #[test]
    fn a_copy_for_several_peers_stays_until_all_have_taken_it() {
        let mut outbox = Outbox::new(&pool(true)).unwrap();
        let (first, others) = (vec![1u8; CAPACITY / 2], vec![2u8; CAPACITY / 2]);
        let lies = copy(&mut outbox, &first, 1, 0, |_, _| false);
        assert_eq!(copy(&mut outbox, &first, 2, 0, |_, _| false), lies, "copied once for both");
        outbox.forget_last();
        // One peer has taken its first message, the other one has not.
        let quick = |peer: Rank, number: u32| peer == Rank(1) && number == 0;
        for number in 1..4 {
            copy(&mut outbox, &others, 1, number, quick);
            outbox.forget_last();
            // SAFETY: the ring lives as long as the outbox.
            let kept = unsafe { std::slice::from_raw_parts(lies, first.len()) };
            assert!(kept.iter().all(|byte| *byte == 1), "overwritten by message {number}");
        }
        assert_eq!(copy(&mut outbox, &others, 2, 1, |_, _| true), lies, "free when both have");
    }
}
