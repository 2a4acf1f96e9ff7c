//! Where bytes lie in the memory of a rank, and the same bytes as another rank sees them.

use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::Mapping;

/// Where bytes lie in a rank's memory, as it tells others: in the file of that descriptor the block that
/// begins there and is so long, and how far from the block's beginning. Between threads of one process the
/// offset is the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: i32,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) offset: u64,
}

/// Memory of a peer that this process can read where it lies. It stays mapped as long as this lives; that it
/// stays as it is the peer has to promise.
#[derive(Debug)]
pub(crate) struct PeerMemory {
    start: NonNull<u8>,
    /// `None` in memory of this process.
    _pages: Option<Arc<Mapping>>,
}

// SAFETY: an address, and pages that are owned together with others; both are plain memory.
unsafe impl Send for PeerMemory {}
// SAFETY: as above; a shared reference gives out the address only.
unsafe impl Sync for PeerMemory {}

impl PeerMemory {
    /// From that address on, in these pages, or in memory of this process.
    pub(crate) fn new(start: NonNull<u8>, pages: Option<Arc<Mapping>>) -> Self {
        PeerMemory { start, _pages: pages }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}
