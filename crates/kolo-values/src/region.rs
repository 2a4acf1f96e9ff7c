//! Memory of which only the pages that were written exist.
//!
//! An allocator may give back memory that it has, and clears all of it for a vector of zeros. So these pages
//! come from the operating system itself.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Numbers in memory, at first zeros that take none.
#[derive(Debug)]
pub struct Region {
    start: NonNull<f32>,
    len: usize,
}

// SAFETY: a region is plain memory, owned by this value.
unsafe impl Send for Region {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves addresses for `len` numbers.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Region { start: NonNull::dangling(), len });
        }
        let bytes = len * size_of::<f32>();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address the kernel chooses touches no memory in use.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        // One number of a small tensor must not bring a large page. Without large pages there is no such
        // advice.
        // SAFETY: the range has just been mapped; the advice changes no contents.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxNoHugepage) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { start, len })
    }
}

impl Deref for Region {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the range is mapped, aligned to a page and initialized: with zeros, or by a write.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and this reference is the only one.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `new` has mapped the range, and nothing borrows from a region that is being dropped.
            // Failure would mean that the range is not mapped; it can be ignored.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len * size_of::<f32>()) };
        }
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
