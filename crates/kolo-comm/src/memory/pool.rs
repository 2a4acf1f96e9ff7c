//! Blocks of memory, kept for reuse: peers map a shared block once and find it again in every later
//! collective.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use super::mapping::{Mapping, number};
use kolo_rendezvous::{Error, InvalidCall};

/// Where a pool's blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// The heap: for peers in this process, and for sockets.
    Heap,
    /// Pages that other processes can map.
    Shared,
}

/// Blocks are whole pages, which also aligns them for vector instructions.
const PAGE: usize = 4096;

#[derive(Debug)]
enum Home {
    Heap,
    Shared { file: OwnedFd, _pages: Mapping },
}

/// One block. Belongs to whoever holds it until it is given back.
#[derive(Debug)]
pub(crate) struct Block {
    start: NonNull<u8>,
    len: usize,
    home: Home,
}

// SAFETY: a block is plain memory with one owner.
unsafe impl Send for Block {}
// SAFETY: a shared reference to a block gives out addresses only.
unsafe impl Sync for Block {}

impl Block {
    fn new(backing: Backing, len: usize) -> Result<Block, Error> {
        match backing {
            Backing::Heap => {
                // SAFETY: the layout has a size greater than zero.
                let start = NonNull::new(unsafe { alloc_zeroed(layout(len)) })
                    .ok_or_else(|| Error::system("cannot allocate a buffer", format!("{len} bytes")))?;
                Ok(Block { start, len, home: Home::Heap })
            }
            Backing::Shared => {
                let (pages, file) = Mapping::create(len)?;
                Ok(Block { start: pages.start(), len, home: Home::Shared { file, _pages: pages } })
            }
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The file descriptor by which another process maps the block; `None` on the heap.
    pub(crate) fn file(&self) -> Option<i32> {
        match &self.home {
            Home::Heap => None,
            Home::Shared { file, .. } => Some(number(file)),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Home::Heap = self.home {
            // SAFETY: allocated by `new` with the same layout.
            unsafe { dealloc(self.start.as_ptr(), layout(self.len)) }
        }
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, PAGE).expect("a block is a whole number of pages below isize::MAX")
}

/// A group's memory.
#[derive(Debug)]
pub(crate) struct Pool {
    backing: Backing,
    free: Mutex<Vec<Block>>,
    /// Blocks of collectives that failed: a peer that has not noticed yet may still read them.
    abandoned: Mutex<Vec<Block>>,
}

impl Pool {
    pub(crate) fn new(backing: Backing) -> Arc<Self> {
        Arc::new(Pool { backing, free: Mutex::default(), abandoned: Mutex::default() })
    }

    /// A block of at least `bytes` bytes: a free one that is not more than twice too large, else a new one.
    pub(crate) fn take(&self, bytes: usize) -> Result<Block, Error> {
        let limit = isize::MAX as usize - PAGE;
        if bytes > limit {
            return Err(InvalidCall::BufferTooLarge { elements: bytes, size: 1 }.into());
        }
        let len = bytes.max(1).next_multiple_of(PAGE);
        let mut free = self.free.lock();
        let fitting = (0..free.len()).filter(|&i| free[i].len >= len && free[i].len <= 2 * len);
        match fitting.min_by_key(|&i| free[i].len) {
            Some(index) => Ok(free.swap_remove(index)),
            None => Block::new(self.backing, len),
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.backing == Backing::Shared
    }

    /// Frees what is not in use. Not what peers may have mapped: they would take the next block that gets the
    /// same file descriptor for the one that they know.
    pub(crate) fn forget(&self) {
        if !self.is_shared() {
            self.free.lock().clear();
        }
    }

    pub(crate) fn give_back(&self, block: Block) {
        self.free.lock().push(block);
    }

    /// Keeps a block from being used again. It goes with the pool.
    pub(crate) fn abandon(&self, block: Block) {
        self.abandoned.lock().push(block);
    }
}
