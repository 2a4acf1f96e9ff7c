//! Where short messages lie that are sent as copies: a ring of shared memory that belongs to the sender.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Error;
use crate::memory::{Backing, Block, Pool};
use crate::rank::Rank;

/// Bytes of a ring. What finds no room goes to a block of its own.
const CAPACITY: usize = 256 * 1024;
/// Copies start on cache lines of their own.
const LINE: usize = 64;

/// One copy that a peer may still read.
struct Lent {
    peer: Rank,
    /// The number of the message.
    number: u32,
    /// Where the ring is free again when this and all earlier ones have been taken.
    end: usize,
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
    /// In the ring.
    Ring { offset: usize, end: usize },
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
        let (block, end) = match spot {
            Spot::Ring { end, .. } => (None, end),
            Spot::Apart => (Some(self.pool.take(bytes)?), self.head),
        };
        self.lent.push_back(Lent { peer, number, end, block });
        let (block, offset) = match (spot, self.lent.back().and_then(|lent| lent.block.as_ref())) {
            (Spot::Apart, Some(block)) => (block, 0),
            (Spot::Ring { offset, .. }, _) => (&self.ring, offset),
            (Spot::Apart, None) => unreachable!("a copy apart has its block"),
        };
        if !matches!(again, Some(Spot::Ring { .. })) {
            assert!(offset + bytes <= block.len(), "a copy fits where it is put");
            // SAFETY: inside the block, which nobody reads before the message is posted; never overlaps the source,
            // which lies in a buffer.
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
        Some(Spot::Ring { offset: start % CAPACITY, end: self.head })
    }

    /// Takes back what has been read.
    fn reclaim(&mut self, taken: impl Fn(Rank, u32) -> bool) {
        while let Some(first) = self.lent.pop_front_if(|lent| taken(lent.peer, lent.number)) {
            self.tail = first.end;
            first.block.into_iter().for_each(|block| self.pool.give_back(block));
        }
        if self.lent.is_empty() {
            self.tail = self.head;
        }
    }
}

/// Blocks of heap memory serve threads of one process; others have to map them.
pub(super) fn pool(within_process: bool) -> Arc<Pool> {
    Pool::new(if within_process { Backing::Heap } else { Backing::Shared })
}
