//! Accounts of the blocks that other ranks may still read. Each rank keeps one, of the blocks that it has
//! shown to the others in *windows*, and of the windows that it reads itself.
//!
//! All ranks open the same windows in the same order, so a window has the same number on all of them.
//! With every window a rank sends the number of the first window that it still reads. Once all numbers
//! have arrived, the blocks of all windows before the lowest one can be reused. So no rank waits for
//! readers, and nothing is sent only for them. A block stays in use until later windows show that nobody
//! reads it, which costs a second block if the first one is needed at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::pool::{Block, Pool};

/// The account of one rank of a group.
#[derive(Debug)]
pub struct Lending {
    windows: Mutex<Windows>,
    /// The pool for blocks that other ranks may still read when the account ends. Ranks that are threads
    /// of one process share it, and every window holds it, so it outlives all readers.
    kept: Arc<Pool>,
}

#[derive(Debug, Default)]
struct Windows {
    next: u64,
    /// Windows that this rank reads or is opening.
    open: BTreeSet<u64>,
    /// Blocks that other ranks may still read.
    closed: Vec<ClosedBlock>,
}

/// A block of this rank, in a window that this rank has closed.
#[derive(Debug)]
struct ClosedBlock {
    window: u64,
    block: Block,
    pool: Arc<Pool>,
}

impl Lending {
    /// Creates an account; blocks that may still be read at its end go to `kept`.
    pub fn new(kept: Arc<Pool>) -> Arc<Self> {
        Arc::new(Lending { windows: Mutex::default(), kept })
    }

    /// Begins a window. Returns its number and that of the first window that this rank still reads.
    pub fn begin(&self) -> (u64, u64) {
        let mut windows = self.windows.lock();
        let number = windows.next;
        windows.next += 1;
        windows.open.insert(number);
        (number, windows.open.first().copied().unwrap_or(number))
    }

    /// Frees the blocks of earlier windows: all ranks have reported that they read none before this one.
    pub fn none_is_read_before(&self, window: u64) {
        let mut windows = self.windows.lock();
        for ClosedBlock { block, pool, .. } in windows.closed.extract_if(.., |closed| closed.window < window)
        {
            pool.give_back(block);
        }
    }

    /// Records that this rank no longer reads a window in which it has shown `block`.
    pub fn close(&self, window: u64, block: Block, pool: Arc<Pool>) {
        let mut windows = self.windows.lock();
        windows.open.remove(&window);
        windows.closed.push(ClosedBlock { window, block, pool });
    }
}

/// No more reports will arrive, so blocks that may still be read go to the kept pool.
impl Drop for Lending {
    fn drop(&mut self) {
        self.windows.get_mut().closed.drain(..).for_each(|closed| self.kept.abandon(closed.block));
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::Backing;
    use super::*;

    fn address(block: &Block) -> usize {
        block.start().as_ptr().addr()
    }

    #[test]
    fn a_block_is_reused_once_all_ranks_have_reported_that_they_have_read_it() {
        let pool = Pool::new(Backing::Heap);
        let lending = Lending::new(pool.clone());
        let (first, second) = (pool.take(1).unwrap(), pool.take(1).unwrap());
        let places = [address(&first), address(&second)];
        assert_eq!((lending.begin(), lending.begin()), ((0, 0), (1, 0)));
        // Windows close in another order than they opened.
        lending.close(1, second, pool.clone());
        assert_eq!(lending.begin(), (2, 0), "window 0 is still read");
        lending.close(0, first, pool.clone());
        assert_eq!(lending.begin(), (3, 2));

        // Some rank still reads window 0, then 1.
        let mut taken = Vec::new();
        let mut take = || {
            taken.push(pool.take(1).unwrap());
            taken.last().map(address)
        };
        let is_another = |place: Option<usize>| place.is_some_and(|place| !places.contains(&place));
        lending.none_is_read_before(0);
        assert!(is_another(take()));
        lending.none_is_read_before(1);
        assert_eq!(take(), Some(places[0]));
        assert!(is_another(take()));
        lending.none_is_read_before(2);
        assert_eq!(take(), Some(places[1]));
    }

    #[test]
    fn a_block_that_may_still_be_read_lives_until_the_last_reader_ends() {
        let (pool, kept) = (Pool::new(Backing::Heap), Pool::new(Backing::Heap));
        let lending = Lending::new(kept.clone());
        let (number, _) = lending.begin();
        let block = pool.take(1).unwrap();
        let place = address(&block);
        lending.close(number, block, pool.clone());
        drop(lending);
        assert_ne!(address(&pool.take(1).unwrap()), place, "not used again");
        assert!(kept.holds_for_tests(place));
    }
}
