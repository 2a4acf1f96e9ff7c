//! The file that holds all shared blocks of a pool, one behind the other: a group needs one file
//! descriptor, however many buffers it has.

use std::sync::Arc;

use super::mapping::{HUGE, Mapping};
use super::shared_file::{Purpose, SharedFile};
use kolo_rendezvous::Error;

/// Alignment of long blocks: the size of a large page (2 MiB).
const ALIGNMENT: u64 = 2 << 20;

/// A file that grows with every block. Its pages take no memory before they are written.
#[derive(Debug)]
pub(super) struct Arena {
    file: Arc<SharedFile>,
    len: u64,
}

impl Arena {
    pub(super) fn create() -> Result<Arena, Error> {
        Ok(Arena { file: Arc::new(SharedFile::create(Purpose::Blocks)?), len: 0 })
    }

    /// Adds `len` bytes of zeroed, whole pages. Returns them with the file and their start in it.
    pub(super) fn extend(&mut self, len: usize) -> Result<(Mapping, Arc<SharedFile>, u64), Error> {
        let start = if len >= HUGE { self.len.next_multiple_of(ALIGNMENT) } else { self.len };
        let pages = self.file.grow(start, len)?;
        self.len = start + len as u64;
        Ok((pages, self.file.clone(), start))
    }
}
