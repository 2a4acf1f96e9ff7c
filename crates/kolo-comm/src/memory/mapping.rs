//! Pages shared between processes.
//!
//! They belong to an anonymous file (`memfd_create`), which peers open through `/proc/<pid>/fd/<fd>`. It has
//! no name anywhere, so nothing is left behind, however a process ends.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use kolo_rendezvous::Error;

/// From this many bytes on large pages save more than they may waste.
const HUGE: usize = 4 << 20;

/// Mapped pages; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory, owned by this value; those who use it from several threads or processes
// synchronise by themselves.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New zeroed pages, and the file by which others can map them.
    pub(crate) fn create(len: usize) -> Result<(Mapping, OwnedFd), Error> {
        let fail = |cause| Error::system(format!("cannot allocate {len} bytes of shared memory"), cause);
        let file = rustix::fs::memfd_create(c"kolo", MemfdFlags::CLOEXEC).map_err(fail)?;
        rustix::fs::ftruncate(&file, len as u64).map_err(fail)?;
        Ok((Self::map(&file, len).map_err(fail)?, file))
    }

    /// Pages that the process `pid` created and holds open as `fd`.
    pub(crate) fn open(pid: u32, fd: i32, len: usize) -> Result<Mapping, Error> {
        let fail = |cause| Error::system(format!("cannot map the shared memory of process {pid}"), cause);
        let path = format!("/proc/{pid}/fd/{fd}");
        let file = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
        let size = rustix::fs::fstat(&file).map_err(fail)?.st_size;
        if size < len as i64 {
            let problem = format!("{path} holds {size} bytes where {len} were announced");
            return Err(Error::system(format!("cannot map the shared memory of process {pid}"), problem));
        }
        Self::map(&file, len).map_err(fail)
    }

    fn map(file: &impl std::os::fd::AsFd, len: usize) -> rustix::io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address the kernel chooses touches no memory in use.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        if len >= HUGE {
            // Where the system lets shared memory have them (shmem_enabled); where not, nothing is lost.
            // SAFETY: the range has just been mapped; the advice changes no contents.
            let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxHugepage) };
        }
        Ok(Mapping { start: NonNull::new(start.cast()).ok_or(rustix::io::Errno::FAULT)?, len })
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
        // SAFETY: the range was mapped by `map` and nothing borrows from a mapping that is being dropped.
        // Failure would mean a range that is not mapped; there is nothing to do about it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A file descriptor as peers have to name it.
pub(crate) fn number(file: &OwnedFd) -> i32 {
    file.as_raw_fd()
}
