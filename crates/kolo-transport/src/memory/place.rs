//! Places of bytes in a rank's memory, and another rank's view of the same bytes.

use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::Mapping;

/// A place in a rank's memory, as sent to other ranks: the file descriptor, the start and length of a block
/// in that file, and the offset in the block. Between threads of one process the offset is the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// File descriptor in the owner's process.
    pub file: i32,
    /// Start of the block in the file.
    pub start: u64,
    /// Length of the block, in bytes.
    pub len: u64,
    /// Offset in the block; between threads the address.
    pub offset: u64,
}

/// Memory of a peer that this process can read in place. It stays mapped while this value lives; the peer
/// must keep the contents unchanged.
#[derive(Debug)]
pub struct PeerMemory {
    start: NonNull<u8>,
    /// The mapping that holds the memory; `None` for memory of this process.
    _pages: Option<Arc<Mapping>>,
}

// SAFETY: an address, and pages with shared ownership; both are plain memory.
unsafe impl Send for PeerMemory {}
// SAFETY: as above; a shared reference gives out the address only.
unsafe impl Sync for PeerMemory {}

impl PeerMemory {
    /// Creates a view from `start` on, in `pages` or in memory of this process.
    pub(crate) fn new(start: NonNull<u8>, pages: Option<Arc<Mapping>>) -> Self {
        PeerMemory { start, _pages: pages }
    }

    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}
