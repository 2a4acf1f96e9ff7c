//! Anonymous files whose pages processes of one host share.
//!
//! `memfd_create` makes a file, and peers open it through `/proc/<pid>/fd/<fd>`. It has no name in any
//! file system, so nothing is left behind, however a process ends.
//!
//! A peer sends the place of its file, and without a token that peer may be any process of this host. So
//! this module opens only files that it has made itself, for the same purpose and the same user. Otherwise a
//! forged message could make a rank open and write to any file, device or pipe that its user may open.

use std::ffi::CStr;
use std::fmt::{self, Display};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;

use super::mapping::Mapping;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The inbox of a rank.
    Inbox,
    /// Blocks of a pool.
    Blocks,
    /// A job's values and the state of its optimizer.
    State,
}

impl Purpose {
    fn name(self) -> &'static CStr {
        match self {
            Purpose::Inbox => c"kolo-inbox",
            Purpose::Blocks => c"kolo-blocks",
            Purpose::State => c"kolo-state",
        }
    }

    /// Target of links in `/proc` to a file for this purpose.
    fn link(self) -> Vec<u8> {
        [b"/memfd:", self.name().to_bytes(), b" (deleted)"].concat()
    }
}

/// A file whose pages several processes map. A seal forbids shrinking it, which would remove pages in use.
#[derive(Debug)]
pub(crate) struct SharedFile(OwnedFd);

/// Reason why a peer's file cannot be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The process or its file no longer exists.
    Gone,
    /// The file was not made by Kolo for this purpose; the text gives the reason.
    Foreign(String),
    /// The operating system refuses to open it.
    Refused(Errno),
}

impl Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Gone => f.write_str("it is not there any more"),
            OpenError::Foreign(what) => f.write_str(what),
            OpenError::Refused(cause) => cause.fmt(f),
        }
    }
}

impl OpenError {
    /// Returns the error for a rank's memory that cannot be mapped.
    pub(crate) fn of_rank(self, rank: Rank) -> Error {
        let what = format!("cannot map the shared memory of {rank}");
        match self {
            OpenError::Refused(Errno::ACCESS) => Error::system(what, no_access(is_readable())),
            // Where `/proc` shows this process, it shows the others of its user.
            OpenError::Gone if Path::new("/proc/self").exists() => {
                Error::Abandoned { rank, reason: "its shared memory is not there any more".into() }
            }
            OpenError::Refused(cause) => Error::io(what, cause.into()),
            cause => Error::system(what, cause),
        }
    }
}

/// Returns true if this process's memory may be opened by others of its user: the kernel refuses it where
/// the user may execute the program's file and not read it.
fn is_readable() -> bool {
    let behavior = rustix::process::dumpable_behavior();
    behavior.is_ok_and(|behavior| behavior == rustix::process::DumpableBehavior::Dumpable)
}

/// Describes why another process of this host and user cannot be opened.
fn no_access(is_readable: bool) -> String {
    let cause = std::io::Error::from(Errno::ACCESS);
    match is_readable {
        true => cause.to_string(),
        false => {
            format!("{cause}; the program's file may be executed and not read: permit that, too (chmod +r)")
        }
    }
}

impl SharedFile {
    pub(crate) fn create(purpose: Purpose) -> Result<SharedFile, Error> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = rustix::fs::memfd_create(purpose.name(), flags).and_then(|file| {
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
            Ok(SharedFile(file))
        });
        made.map_err(|cause| Error::io("cannot make a file for shared memory", cause.into()))
    }

    /// Extends the file to `start + len` bytes, which must not shrink it, and maps the last `len` of them.
    pub(crate) fn grow(&self, start: u64, len: usize) -> Result<Mapping, Error> {
        // Pages can be mapped before the file has them. A file that has grown cannot shrink again.
        let mapped = Mapping::of(&self.0, start, len).and_then(|pages| {
            rustix::fs::ftruncate(&self.0, start.saturating_add(len as u64)).map(|()| pages)
        });
        let what = || format!("cannot allocate {len} bytes of shared memory");
        mapped.map_err(|cause| Error::io(what(), cause.into()))
    }

    /// Frees the memory of `len` bytes from `start` on, which read as zeros from then on in all processes.
    pub(crate) fn clear(&self, start: u64, len: usize) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(cause) = rustix::fs::fallocate(&self.0, flags, start, len as u64) {
            log::warn!("{len} bytes of shared memory that are not used stay in memory: {cause}");
        }
    }

    pub(crate) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Reads the bytes from `start` on, until `to` is full.
    pub(crate) fn read(&self, start: u64, to: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        let mut done = 0;
        while done < to.len() {
            match rustix::io::pread(&self.0, &mut to[done..], start + done as u64) {
                Ok(([], _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((read, _)) => done += read.len(),
                Err(Errno::INTR) => {}
                Err(cause) => return Err(cause.into()),
            }
        }
        Ok(())
    }

    /// Maps `len` bytes from `start` on, which is the beginning of a page.
    pub(crate) fn map(&self, start: u64, len: usize) -> Result<Mapping, Error> {
        let what = || format!("cannot map {len} bytes of shared memory");
        Mapping::of(&self.0, start, len).map_err(|cause| Error::io(what(), cause.into()))
    }

    /// Makes pages of the file, which were mapped from `start` on, private to this process: peers keep what
    /// is in them now, and this process's writes go to copies.
    pub(crate) fn make_private(&self, pages: &Mapping, start: u64) -> Result<(), Error> {
        let what = || format!("cannot keep {} bytes of shared memory as they are", pages.len());
        pages.make_private(&self.0, start).map_err(|cause| Error::io(what(), cause.into()))
    }

    /// Maps `len` bytes from `start` on of a file that the process `pid` has created and holds open as `fd`.
    pub(crate) fn map_of(
        pid: u32,
        fd: i32,
        purpose: Purpose,
        start: u64,
        len: usize,
    ) -> Result<Mapping, OpenError> {
        let SharedFile(file) = Self::open(pid, fd, purpose, start, len)?;
        Mapping::of(&file, start, len).map_err(|cause| match cause {
            // A bad place is the peer's fault.
            Errno::INVAL => {
                OpenError::Foreign(format!("/proc/{pid}/fd/{fd} has no page that begins at {start}"))
            }
            cause => OpenError::Refused(cause),
        })
    }

    /// Opens a file that the process `pid` holds open as `fd` and that has `len` bytes from `start` on.
    pub(crate) fn open(
        pid: u32,
        fd: i32,
        purpose: Purpose,
        start: u64,
        len: usize,
    ) -> Result<SharedFile, OpenError> {
        let gone_or = |cause| match cause {
            Errno::NOENT | Errno::SRCH => OpenError::Gone,
            cause => OpenError::Refused(cause),
        };
        let path = format!("/proc/{pid}/fd/{fd}");
        // Check the link before opening, because merely opening a pipe or a device may have effects.
        check_link(&path, purpose).map_err(gone_or)??;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(gone_or)?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        // The descriptor may have become another file's in between.
        check_link(&own, purpose).map_err(OpenError::Refused)??;
        let stat = rustix::fs::fstat(&file).map_err(OpenError::Refused)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(OpenError::Foreign(format!("{path} belongs to user {}", stat.st_uid)));
        }
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(OpenError::Foreign(format!("{path} may become shorter")));
        }
        let end = start.checked_add(len as u64);
        if len == 0 || end.is_none_or(|end| stat.st_size < 0 || end > stat.st_size as u64) {
            let problem = format!("{path} holds {} bytes where {start} + {len} are announced", stat.st_size);
            return Err(OpenError::Foreign(problem));
        }
        Ok(SharedFile(file))
    }
}

/// Checks that a link in `/proc` leads to a file for this purpose.
fn check_link(path: &str, purpose: Purpose) -> rustix::io::Result<Result<(), OpenError>> {
    let link = rustix::fs::readlink(path, Vec::new())?;
    if link.to_bytes() == purpose.link() {
        return Ok(Ok(()));
    }
    let what = format!("{path} is {}, which is no shared memory of Kolo's", link.to_string_lossy());
    Ok(Err(OpenError::Foreign(what)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_program_that_cannot_be_read_is_named_as_the_cause() {
        assert!(is_readable() && !no_access(true).contains("chmod"));
        assert!(no_access(false).contains("Permission denied") && no_access(false).contains("chmod +r"));
    }

    const LEN: usize = 8192;

    fn open(file: &impl AsFd, purpose: Purpose, len: usize) -> Result<Mapping, OpenError> {
        SharedFile::map_of(std::process::id(), file.as_fd().as_raw_fd(), purpose, 0, len)
    }

    #[test]
    fn only_files_of_this_module_are_opened() {
        let made = SharedFile::create(Purpose::Blocks).unwrap();
        let pages = made.grow(0, LEN).unwrap();
        // SAFETY: inside the mapping, which nothing else writes.
        unsafe { pages.start().write(7) };
        let opened = open(&made.0, Purpose::Blocks, LEN).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { opened.start().read() }, 7);

        let file = tempfile();
        let memfd = rustix::fs::memfd_create(c"kolo-blocks", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&memfd, LEN as u64).unwrap();
        let (pipe, _other_end) = std::io::pipe().unwrap();
        let refused = [
            ("another purpose", open(&made.0, Purpose::Inbox, LEN)),
            ("longer than it is", open(&made.0, Purpose::Blocks, LEN + 1)),
            ("nothing of it", open(&made.0, Purpose::Blocks, 0)),
            (
                "the middle of a page",
                SharedFile::map_of(std::process::id(), made.number(), Purpose::Blocks, 1, 64),
            ),
            ("a file", open(&file, Purpose::Blocks, LEN)),
            ("one that may be cut", open(&memfd, Purpose::Blocks, LEN)),
            ("a pipe", open(&pipe, Purpose::Blocks, LEN)),
        ];
        for (what, result) in refused {
            assert!(matches!(result, Err(OpenError::Foreign(_))), "{what}: {result:?}");
        }
        let number = made.number();
        drop(made);
        let gone = SharedFile::map_of(u32::MAX, number, Purpose::Blocks, 0, LEN);
        assert!(matches!(gone, Err(OpenError::Gone)), "{gone:?}");
    }

    #[test]
    fn a_file_cannot_be_shortened() {
        let made = SharedFile::create(Purpose::Inbox).unwrap();
        made.grow(0, LEN).unwrap();
        assert_eq!(rustix::fs::ftruncate(&made.0, 0), Err(Errno::PERM));
    }

    /// Creates an unlinked file of zeros.
    fn tempfile() -> std::fs::File {
        let path = std::env::temp_dir().join(format!("memfd:kolo-blocks-{}", std::process::id()));
        let options = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(LEN as u64).unwrap();
        file
    }
}
