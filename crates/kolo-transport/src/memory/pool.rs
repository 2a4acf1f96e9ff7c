//! Blocks of memory, kept for reuse: peers map a shared block once and use it in every later collective.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use super::arena::Arena;
use super::mapping::Mapping;
use super::shared_file::SharedFile;
use kolo_rendezvous::{Error, InvalidCall};

/// Kind of memory that a pool's blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// The heap: for peers in this process, and for sockets.
    Heap,
    /// Pages that other processes can map.
    Shared,
}

/// Size of a page. Blocks are whole pages, which also aligns them for vector instructions.
const PAGE: usize = 4096;

#[derive(Debug)]
enum Home {
    Heap,
    /// Pages of a file, and their start in it.
    Shared {
        pages: Mapping,
        file: Arc<SharedFile>,
        start: u64,
    },
}

/// One block. Its holder owns it until giving it back.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    len: usize,
    home: Home,
}

// SAFETY: a block is plain memory with one owner.
unsafe impl Send for Block {}
// SAFETY: a shared reference to a block gives out addresses only.
unsafe impl Sync for Block {}

impl Block {
    fn on_heap(len: usize) -> Result<Block, Error> {
        // SAFETY: the layout has a size greater than zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout(len)) })
            .ok_or_else(|| Error::system("cannot allocate a buffer", format!("{len} bytes")))?;
        Ok(Block { start, len, home: Home::Heap })
    }

    fn shared(arena: &mut Option<Arena>, len: usize) -> Result<Block, Error> {
        let arena = match arena {
            Some(arena) => arena,
            None => arena.insert(Arena::create()?),
        };
        let (pages, file, start) = arena.extend(len)?;
        Ok(Block { start: pages.start(), len, home: Home::Shared { pages, file, start } })
    }

    /// Address of the first byte.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes the block private to this process; peers keep what is in it now. It must not be shared again.
    pub(super) fn make_private(&self) -> Result<(), Error> {
        match &self.home {
            Home::Heap => Ok(()),
            Home::Shared { pages, file, start } => file.make_private(pages, *start),
        }
    }

    /// File descriptor for mapping the block, and the block's start in the file; `None` on the heap.
    pub(crate) fn file(&self) -> Option<(i32, u64)> {
        match &self.home {
            Home::Heap => None,
            Home::Shared { file, start, .. } => Some((file.number(), *start)),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Home::Heap = self.home {
            // SAFETY: allocated by `on_heap` with the same layout.
            unsafe { dealloc(self.start.as_ptr(), layout(self.len)) }
        }
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, PAGE).expect("a block is a whole number of pages below isize::MAX")
}

/// Blocks of one kind of memory, kept for reuse.
#[derive(Debug)]
pub struct Pool {
    backing: Backing,
    /// File of the shared blocks; `None` before the first one.
    arena: Mutex<Option<Arena>>,
    free: Mutex<Vec<Block>>,
    /// Blocks of failed collectives: a peer that has not noticed the failure may still read them.
    abandoned: Mutex<Vec<Block>>,
}

impl Pool {
    /// Creates a pool without blocks.
    pub fn new(backing: Backing) -> Arc<Self> {
        let (arena, free, abandoned) = Default::default();
        Arc::new(Pool { backing, arena, free, abandoned })
    }

    /// Takes a block of at least `bytes` bytes: a free one that is at most twice too large, else a new one.
    pub fn take(&self, bytes: usize) -> Result<Block, Error> {
        let limit = isize::MAX as usize - PAGE;
        if bytes > limit {
            return Err(InvalidCall::BufferTooLarge { elements: bytes, size: 1 }.into());
        }
        let len = bytes.max(1).next_multiple_of(PAGE);
        let mut free = self.free.lock();
        let fitting = (0..free.len()).filter(|&i| free[i].len >= len && free[i].len <= 2 * len);
        match fitting.min_by_key(|&i| free[i].len) {
            Some(index) => Ok(free.swap_remove(index)),
            None if self.is_shared() => Block::shared(&mut self.arena.lock(), len),
            None => Block::on_heap(len),
        }
    }

    /// Returns true if other processes can map the blocks.
    pub fn is_shared(&self) -> bool {
        self.backing == Backing::Shared
    }

    /// Frees unused blocks, except those that peers may have mapped: the mappings would keep their memory.
    pub fn forget(&self) {
        if !self.is_shared() {
            self.free.lock().clear();
        }
    }

    /// Keeps a block for reuse.
    pub fn give_back(&self, block: Block) {
        self.free.lock().push(block);
    }

    /// Keeps a block from being reused until the pool is dropped.
    pub fn abandon(&self, block: Block) {
        self.abandoned.lock().push(block);
    }

    /// Returns true if the block at this address is kept from being reused.
    #[cfg(test)]
    pub(super) fn holds_for_tests(&self, address: usize) -> bool {
        self.abandoned.lock().iter().any(|block| block.start().as_ptr().addr() == address)
    }
}
