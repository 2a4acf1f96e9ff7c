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

    /// Frees the memory of a shared block. What it holds is lost, also for peers.
    fn clear(&self) {
        if let Home::Shared { file, start, .. } = &self.home {
            file.clear(*start, self.len);
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

    /// Frees the memory of unused blocks. Shared ones keep their addresses, because peers may have mapped
    /// them: they are zeros from then on, which take no memory until somebody writes there.
    pub fn forget(&self) {
        let mut free = self.free.lock();
        match self.backing {
            Backing::Heap => free.clear(),
            Backing::Shared => free.iter().for_each(Block::clear),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of memory that the pool's file has.
    fn memory(block: &Block) -> u64 {
        let (file, _) = block.file().unwrap();
        let metadata = std::fs::metadata(format!("/proc/self/fd/{file}")).unwrap();
        std::os::unix::fs::MetadataExt::blocks(&metadata) * 512
    }

    fn fill(block: &Block, byte: u8) {
        // SAFETY: the block is this long, and nobody reads it meanwhile.
        unsafe { block.start().as_ptr().write_bytes(byte, block.len()) };
    }

    fn bytes(block: &Block) -> &[u8] {
        // SAFETY: the block is this long and initialized, and nobody writes it meanwhile.
        unsafe { std::slice::from_raw_parts(block.start().as_ptr(), block.len()) }
    }

    #[test]
    fn unused_shared_blocks_take_no_memory_and_those_in_use_keep_theirs() {
        let pool = Pool::new(Backing::Shared);
        // The last one has large pages where there are some.
        let blocks: Vec<Block> = [3, 1, 2048].map(|pages| pool.take(pages * PAGE).unwrap()).into();
        blocks.iter().zip(1..).for_each(|(block, byte)| fill(block, byte));
        let all: usize = blocks.iter().map(Block::len).sum();
        assert_eq!(memory(&blocks[0]), all as u64);
        let [first, used, last] = <[Block; 3]>::try_from(blocks).unwrap();
        let (place, long) = (first.start(), last.len());
        pool.give_back(first);
        pool.give_back(last);
        assert_eq!(memory(&used), all as u64, "kept for reuse");
        pool.forget();
        assert_eq!(memory(&used), PAGE as u64);
        assert!(bytes(&used).iter().all(|byte| *byte == 2));
        let again = pool.take(3 * PAGE).unwrap();
        assert_eq!(again.start(), place, "at the place that peers have mapped");
        assert!(bytes(&again).iter().all(|byte| *byte == 0));
        fill(&again, 7);
        assert!(bytes(&again).iter().all(|byte| *byte == 7));
        assert_eq!((memory(&used), pool.take(long).unwrap().len()), (4 * PAGE as u64, long));
    }
}
