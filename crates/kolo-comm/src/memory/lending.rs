//! Who may still read which blocks: each rank keeps an account of what it has shown to the others, in
//! *windows*, and of what it reads itself.
//!
//! All ranks open the same windows in the same order, so a window's number is the same on all of them. With
//! every window a rank tells the number of the first one that it still reads: it reads none of those before.
//! When all ranks have told, what lies in windows before the least of these numbers can be used again. So
//! nobody waits for readers, and no message is sent for them; a block is in use until windows opened later
//! show that nobody reads it, which takes a second block wherever the first one is wanted at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::pool::{Block, Pool};

/// The account of one rank of a group.
#[derive(Debug)]
pub(crate) struct Lending {
    windows: Mutex<Windows>,
    /// Where blocks go of which it never becomes known that nobody reads them. Ranks that are threads of one
    /// process share it, and a window holds it, so that it outlives whoever still reads there.
    kept: Arc<Pool>,
}

#[derive(Debug, Default)]
struct Windows {
    /// The number of the next one.
    next: u64,
    /// Those that this rank reads, or is opening.
    open: BTreeSet<u64>,
    /// What others may still read.
    lent: Vec<Lent>,
}

/// A block of this rank whose window it has closed itself.
#[derive(Debug)]
struct Lent {
    window: u64,
    block: Block,
    pool: Arc<Pool>,
}

impl Lending {
    pub(crate) fn new(kept: Arc<Pool>) -> Arc<Self> {
        Arc::new(Lending { windows: Mutex::default(), kept })
    }

    /// A window is about to be opened: its number, and that of the first one that this rank still reads.
    pub(crate) fn begin(&self) -> (u64, u64) {
        let mut windows = self.windows.lock();
        let number = windows.next;
        windows.next += 1;
        windows.open.insert(number);
        (number, windows.open.first().copied().unwrap_or(number))
    }

    /// All ranks have told, when they opened a window, that they read none before this one.
    pub(crate) fn none_is_read_before(&self, window: u64) {
        let mut windows = self.windows.lock();
        for Lent { block, pool, .. } in windows.lent.extract_if(.., |lent| lent.window < window) {
            pool.give_back(block);
        }
    }

    /// This rank does not read a window any more, in which it has shown that block.
    pub(crate) fn close(&self, window: u64, block: Block, pool: Arc<Pool>) {
        let mut windows = self.windows.lock();
        windows.open.remove(&window);
        windows.lent.push(Lent { window, block, pool });
    }
}

/// Nothing will be known any more.
impl Drop for Lending {
    fn drop(&mut self) {
        self.windows.get_mut().lent.drain(..).for_each(|lent| self.kept.abandon(lent.block));
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::Backing;
    use super::*;

    /// Where a block lies.
    fn address(block: &Block) -> usize {
        block.start().as_ptr().addr()
    }

    #[test]
    fn a_block_is_used_again_when_all_have_told_that_they_have_read_it() {
        let pool = Pool::new(Backing::Heap);
        let lending = Lending::new(pool.clone());
        let (first, second) = (pool.take(1).unwrap(), pool.take(1).unwrap());
        let places = [address(&first), address(&second)];
        assert_eq!((lending.begin(), lending.begin()), ((0, 0), (1, 0)));
        // Closed in another order than opened.
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
    fn what_may_still_be_read_goes_with_the_last_reader() {
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
