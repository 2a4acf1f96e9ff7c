//! Memory of which only the pages that were written exist, and which other processes of the host may read.
//!
//! An allocator may give back memory that it has, and clears all of it for a vector of zeros. So these pages
//! come from the operating system itself: from a file in memory, which a process of the same user can open.
//! A word behind the values says which version of them is there for others to read, if any.

use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use kolo_comm::Error;
use kolo_transport::{HostFile, HostPages};
use rustix::mm::{Advice, madvise};
use rustix::param::page_size;
use serde::{Deserialize, Serialize};

/// Place at which another process of the host finds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPlace {
    /// Process that has the file open.
    pub pid: u32,
    /// Its file descriptor.
    pub file: i32,
}

/// Numbers in memory, at first zeros that take none.
#[derive(Debug)]
pub struct Region {
    file: HostFile,
    pages: HostPages,
    len: usize,
}

/// Returns the place of the word behind `len` values, which begins a page.
pub(crate) fn word_after(len: usize) -> usize {
    (len * size_of::<f32>()).next_multiple_of(page_size())
}

/// Returns the word of a version that others may read; 0 says that there is none.
pub(crate) fn word_of(version: u64) -> u64 {
    version + 1
}

impl Region {
    /// Reserves addresses for `len` numbers.
    ///
    /// # Errors
    ///
    /// There are no addresses, or no file may be so large.
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        let bytes = word_after(len) + page_size();
        let file = HostFile::create(bytes)?;
        let pages = file.map(0, bytes)?;
        // One number of a small tensor must not bring a large page. Without large pages there is no such
        // advice.
        // SAFETY: the range has just been mapped; the advice changes no contents.
        let _ = unsafe { madvise(pages.start().as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
        Ok(Region { file, pages, len })
    }

    /// Place at which other processes of the host find the values.
    pub(crate) fn place(&self) -> MemoryPlace {
        MemoryPlace { pid: std::process::id(), file: self.file.number() }
    }

    /// Bytes of the pages that exist; `None` if the operating system does not tell.
    pub fn bytes_in_memory(&self) -> Option<u64> {
        /// Unit of `st_blocks` (stat(2)).
        const BLOCK_BYTES: u64 = 512;
        let file = std::fs::metadata(format!("/proc/self/fd/{}", self.file.number())).ok()?;
        Some(file.blocks() * BLOCK_BYTES)
    }

    /// Lets other processes read this version of the values.
    pub(crate) fn show(&self, version: u64) {
        self.word().store(word_of(version), Ordering::Release);
    }

    /// Declares that the values are about to change: what another process reads from now on is void.
    pub(crate) fn hide(&self) {
        self.word().store(0, Ordering::Release);
        // Nothing changes before others can see that.
        fence(Ordering::SeqCst);
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: inside the mapping and aligned, because it begins a page; all access to it is atomic.
        unsafe { self.pages.start().add(word_after(self.len)).cast().as_ref() }
    }
}

impl Deref for Region {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: mapped, aligned to a page and initialized: with zeros, or by a write. Other processes only
        // read the file.
        unsafe { slice::from_raw_parts(self.pages.start().cast().as_ptr(), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and this reference is the only one of this process.
        unsafe { slice::from_raw_parts_mut(self.pages.start().cast().as_ptr(), self.len) }
    }
}

/// Another process may have the file, in which the values change no more.
impl Drop for Region {
    fn drop(&mut self) {
        self.hide();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_written_pages_take_memory() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/statm").unwrap();
            status.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let before = resident();
        let mut region = Region::new(1 << 28).unwrap();
        region[5] = 1.5;
        region[(1 << 28) - 1] = -2.5;
        assert_eq!((region.len(), region[5], region[6], region[(1 << 28) - 1]), (1 << 28, 1.5, 0.0, -2.5));
        // Of 1 GiB; other tests of this process need little.
        assert!(resident() < before + (64 << 20));
        assert!(Region::new(0).unwrap().is_empty());
    }
}
