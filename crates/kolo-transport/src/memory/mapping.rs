//! Pages of a file in this process's memory.

use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// Bytes from which large pages save more than they may waste.
pub(super) const HUGE: usize = 4 << 20;

/// Mapped pages; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory, owned by this value; code that uses it from several threads or
// processes synchronizes by itself.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `start` on, which is the beginning of a page.
    pub(super) fn of(file: &impl AsFd, start: u64, len: usize) -> rustix::io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address the kernel chooses touches no memory in use.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                start,
            )?
        };
        if len >= HUGE {
            // If the system refuses large pages for shared memory (shmem_enabled), nothing is lost.
            // SAFETY: the range has just been mapped; the advice changes no contents.
            let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxHugepage) };
        }
        Ok(Mapping { start: NonNull::new(start.cast()).ok_or(rustix::io::Errno::FAULT)?, len })
    }

    /// Maps the same pages of the same file again at the same place, so that writes go to copies of them.
    pub(super) fn make_private(&self, file: &impl AsFd, start: u64) -> rustix::io::Result<()> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the range is this mapping's own, and its contents stay the same.
        unsafe { rustix::mm::mmap(self.start.as_ptr().cast(), self.len, protection, flags, file, start) }
            .map(drop)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `of`, and nothing borrows from a mapping that is being dropped.
        // Failure would mean that the range is not mapped; it can be ignored.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
