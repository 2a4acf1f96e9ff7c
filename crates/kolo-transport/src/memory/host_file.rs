//! A file in memory that all workers of a host map, for what outlives each of them: it exists as long as one
//! process has it open. It has no name in any file system, so nothing is left behind, however processes end.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use super::mapping::Mapping;
use super::shared_file::{Purpose, SharedFile};
use kolo_rendezvous::Error;

/// An anonymous file of fixed length.
#[derive(Debug)]
pub struct HostFile {
    file: SharedFile,
    len: usize,
}

/// Pages of a [`HostFile`] in this process's memory, which other processes may change; unmapped on drop.
#[derive(Debug)]
pub struct HostPages(Mapping);

impl HostFile {
    /// Makes a file of `len` zeros. Its pages take no memory before they are written.
    ///
    /// # Errors
    ///
    /// The operating system refuses it.
    pub fn create(len: usize) -> Result<Self, Error> {
        let file = SharedFile::create(Purpose::State)?;
        drop(file.grow(0, len)?);
        Ok(HostFile { file, len })
    }

    /// Opens the file of `len` bytes that the process `pid` holds open as `fd`.
    ///
    /// # Errors
    ///
    /// There is no such file, it is not one of Kolo's, or it may not be opened.
    pub fn open(pid: u32, fd: i32, len: usize) -> Result<Self, Error> {
        let what = || format!("cannot map the memory of process {pid}, which holds the job's state");
        let opened = SharedFile::open(pid, fd, Purpose::State, 0, len);
        let file = opened.map_err(|cause| Error::system(what(), cause))?;
        Ok(HostFile { file, len })
    }

    /// File descriptor by which other processes open it.
    pub fn number(&self) -> i32 {
        self.file.number()
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maps `len` bytes from `start` on; both are whole pages.
    ///
    /// # Errors
    ///
    /// The operating system refuses it.
    pub fn map(&self, start: usize, len: usize) -> Result<HostPages, Error> {
        Ok(HostPages(self.file.map(start as u64, len)?))
    }

    /// Reads the bytes from `start` on, until `to` is full. It takes no addresses of this process. Whether
    /// another process writes the same bytes meanwhile is the caller's business.
    ///
    /// # Errors
    ///
    /// The file ends before that.
    pub fn read(&self, start: usize, to: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        self.file.read(start as u64, to)
    }
}

impl HostPages {
    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.0.start()
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the pages by private copies at the same addresses, so that no process changes them any more.
    /// Readers in this process see the same bytes throughout. Nobody may write them meanwhile.
    ///
    /// # Errors
    ///
    /// There is no memory for the copies.
    pub fn detach(&self) -> io::Result<()> {
        let (start, len) = (self.start().as_ptr(), self.len());
        // SAFETY: a fresh mapping at an address the kernel chooses touches no memory in use.
        let copy = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)?
        };
        // SAFETY: both ranges are mapped and `len` long; the second one is new. Then the copies take the
        // place of the pages, which this value owns; the bytes at these addresses stay the same.
        unsafe {
            copy.cast::<u8>().copy_from_nonoverlapping(start, len);
            rustix::mm::mremap_fixed(copy, len, len, MremapFlags::MAYMOVE, start.cast())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 3 * 4096;

    fn bytes(pages: &HostPages) -> Vec<u8> {
        // SAFETY: the pages are mapped, and no other thread writes them.
        unsafe { std::slice::from_raw_parts(pages.start().as_ptr(), pages.len()) }.to_vec()
    }

    #[test]
    fn detached_pages_keep_their_bytes_and_others_see_later_ones() {
        let made = HostFile::create(LEN).unwrap();
        let opened = HostFile::open(std::process::id(), made.number(), LEN).unwrap();
        assert_eq!((opened.len(), made.is_empty()), (LEN, false));
        drop(made);
        let (kept, writer) = (opened.map(4096, 8192).unwrap(), opened.map(0, LEN).unwrap());
        let place = kept.start();
        // SAFETY: inside the mapping, which nothing else reads now.
        let write = |at: usize, byte: u8| unsafe { writer.start().add(at).write(byte) };
        write(4096, 7);
        write(LEN - 1, 9);
        let before = bytes(&kept);
        assert_eq!((before[0], before[8191]), (7, 9));
        kept.detach().unwrap();
        write(4096, 1);
        assert_eq!((bytes(&kept), kept.start()), (before, place));
        let mut read = Vec::with_capacity(LEN - 4095);
        opened.read(4095, read.spare_capacity_mut()).unwrap();
        // SAFETY: all of them have just been read.
        unsafe { read.set_len(LEN - 4095) };
        assert_eq!((&read[..3], read.last()), (&[0, 1, 0][..], Some(&9)));
        let beyond = opened.read(LEN - 1, &mut [MaybeUninit::uninit(); 2]).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(bytes(&opened.map(4096, 4096).unwrap())[0], 1);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = HostFile::open(std::process::id(), 10_000, LEN).unwrap_err().to_string();
        assert!(error.contains("which holds the job's state") && error.contains("not there"), "{error}");
    }
}
