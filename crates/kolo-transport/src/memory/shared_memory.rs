//! Shared memory for owners that know nothing of groups, such as tensors of another library: they use it as
//! plain slices, and peers read it in place.
//!
//! Its blocks lie in one file of the process, which is never closed: a peer that has mapped a block finds
//! the same pages there, whichever group it belongs to. So the memory outlives groups, and serves several.
//!
//! An owner may write to its memory after a failed collective, while a peer that has not noticed the
//! failure still reads it. The block therefore turns private as soon as no collective uses it: the peers
//! keep its pages, and the owner writes to copies.

use std::collections::BTreeMap;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::Mutex;

use super::pool::{Backing, Block, Pool};
use crate::element::Element;
use kolo_rendezvous::Error;

/// Memory of this process that peers read in place wherever a slice of it takes part in a collective.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address of plain memory, which the registry keeps until the value is dropped.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; a shared reference gives out the address only.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Allocates `bytes` bytes of any values, aligned to pages.
    ///
    /// # Errors
    ///
    /// The operating system has no more memory.
    pub fn new(bytes: usize) -> Result<SharedMemory, Error> {
        let registry = Registry::of_this_process();
        let block = Arc::new(registry.pool.take(bytes)?);
        let start = block.start();
        let entry = Entry { block, collectives: 0, left: false };
        registry.entries.lock().insert(start.as_ptr().addr(), entry);
        Ok(SharedMemory { start, len: bytes })
    }

    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// The memory as elements.
    pub fn elements<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: the block is page-aligned, initialized and this long, any bits are a `T`, and it is
        // borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len / size_of::<T>()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let registry = Registry::of_this_process();
        // A forked process has its parent's memory, but no entry for it: the parent reuses the block.
        let entry = registry.entries.lock().remove(&self.start.as_ptr().addr());
        if let Some(Entry { block, left: false, .. }) = entry
            && let Ok(block) = Arc::try_unwrap(block)
        {
            registry.pool.give_back(block);
        }
    }
}

/// The registry of this process; null before its first shared memory.
static CURRENT: AtomicPtr<Registry> = AtomicPtr::new(null_mut());

/// The shared memory of one process. It lives as long as the process.
struct Registry {
    process: u32,
    pool: Arc<Pool>,
    /// Memory in use, by address.
    entries: Mutex<BTreeMap<usize, Entry>>,
}

struct Entry {
    block: Arc<Block>,
    /// Number of collectives that use the block now.
    collectives: usize,
    /// True after a failed collective, of which peers may still read the block.
    left: bool,
}

impl Registry {
    /// Returns the registry, and a new one in a forked process, whose parent uses the other.
    fn of_this_process() -> &'static Registry {
        let process = std::process::id();
        loop {
            let current = CURRENT.load(Ordering::Acquire);
            // SAFETY: registries are never freed.
            if let Some(registry) = unsafe { current.as_ref() }
                && registry.process == process
            {
                return registry;
            }
            let (pool, entries) = (Pool::new(Backing::Shared), Mutex::default());
            let new = Box::into_raw(Box::new(Registry { process, pool, entries }));
            if CURRENT.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread was faster, and nothing has seen this one.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}

/// A block that a collective uses.
pub(super) struct BlockInUse {
    block: Arc<Block>,
    registry: &'static Registry,
}

impl BlockInUse {
    pub(super) fn block(&self) -> &Block {
        &self.block
    }

    /// Leaves the block to peers, who may still read it.
    pub(super) fn leave_to_peers(self) {
        if let Some(entry) = self.registry.entries.lock().get_mut(&self.block.start().as_ptr().addr()) {
            entry.left = true;
        }
    }
}

impl Drop for BlockInUse {
    fn drop(&mut self) {
        let mut entries = self.registry.entries.lock();
        let Some(entry) = entries.get_mut(&self.block.start().as_ptr().addr()) else { return };
        entry.collectives -= 1;
        if entry.left
            && entry.collectives == 0
            && let Err(error) = entry.block.make_private()
        {
            log::warn!("peers may see later writes: {error}");
        }
    }
}

/// Returns the block that holds `bytes` bytes at an address, and their offset in it; `None` if peers cannot
/// read them in place.
#[inline]
pub(super) fn block_at(address: usize, bytes: usize) -> Option<(BlockInUse, usize)> {
    // SAFETY: registries are never freed.
    let registry = unsafe { CURRENT.load(Ordering::Acquire).as_ref() }?;
    find(registry, address, bytes)
}

fn find(registry: &'static Registry, address: usize, bytes: usize) -> Option<(BlockInUse, usize)> {
    // In a forked process a thread of the parent may hold the lock forever.
    if registry.process != std::process::id() {
        return None;
    }
    let mut entries = registry.entries.lock();
    let (start, entry) = entries.range_mut(..=address).next_back()?;
    let offset = address - start;
    if entry.left || offset + bytes > entry.block.len() {
        return None;
    }
    entry.collectives += 1;
    Some((BlockInUse { block: entry.block.clone(), registry }, offset))
}

#[cfg(test)]
mod tests {
    use super::super::buffer::Memory;
    use super::super::shared_file::{Purpose, SharedFile};
    use super::*;

    const LEN: usize = 3000;

    /// The file and the start of the block that peers read a memory in, and the memory's offset there.
    fn place(memory: &Memory<'_>) -> Option<((i32, u64), usize)> {
        memory.segment(0, 4, 0).place.map(|(block, offset)| (block.file().unwrap(), offset))
    }

    #[test]
    fn slices_are_read_in_place_and_the_memory_is_reused() {
        let mut shared = SharedMemory::new(4 * LEN).unwrap();
        shared.elements::<i32>()[7] = 5;
        let ((file, start), offset) = place(&Memory::of_slice(&mut shared.elements::<i32>()[7..])).unwrap();
        assert_eq!(offset, 28);
        let peer = SharedFile::map_of(std::process::id(), file, Purpose::Blocks, start, 4 * LEN).unwrap();
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { peer.start().cast::<i32>().add(7).read() }, 5);
        let output = &mut [0i32; 10];
        assert!(place(&Memory::of_input(shared.elements(), output, 20)).is_some());
        assert_eq!(place(&Memory::of_slice(output)), None, "memory of somebody else");
        assert_eq!(place(&Memory::of_slice(shared.elements::<i32>()).into_slice()), None);

        let address = shared.start();
        drop(shared);
        assert!(SharedMemory::new(1 << 50).is_err(), "no machine has as much");
        let again = SharedMemory::new(4 * LEN).unwrap();
        assert_eq!(again.start(), address);
    }

    #[test]
    fn peers_keep_what_they_may_still_read_after_a_failure() {
        // Larger than that of the other test, so that neither takes the other's block.
        let mut shared = SharedMemory::new(64 * LEN).unwrap();
        shared.elements().fill(1);
        let own: NonNull<i32> = shared.start().cast();
        let (failed, other) = shared.elements().split_at_mut(1000);
        let (failed, other) = (Memory::of_slice::<i32>(failed), Memory::of_slice(other));
        let ((file, start), _) = place(&failed).unwrap();
        let peer = SharedFile::map_of(std::process::id(), file, Purpose::Blocks, start, 64 * LEN).unwrap();
        // SAFETY: inside the mapping.
        let seen = |index: usize| unsafe { peer.start().cast::<i32>().add(index).read_volatile() };

        failed.leave_to_peers();
        // SAFETY: inside the memory.
        unsafe { own.add(2000).write_volatile(2) };
        assert_eq!(seen(2000), 2, "another collective still shares it");
        drop(other);
        let elements = shared.elements();
        assert_eq!(place(&Memory::of_slice::<i32>(elements)), None, "no further one does");
        elements.fill(3);
        assert_eq!((seen(0), seen(2000)), (1, 2));
        assert!(elements.iter().all(|element| *element == 3));

        drop(shared);
        let mut again = SharedMemory::new(64 * LEN).unwrap();
        assert_ne!(place(&Memory::of_slice::<i32>(again.elements())).unwrap().0, (file, start));
    }
}
