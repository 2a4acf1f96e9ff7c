//! Folders: made durably, and synced where that can be done.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::operation::Operation;
use crate::recording::observed;

/// What the kernel answers where a file system does not sync folders, or other things that are no plain
/// files: some FUSE and network file systems. PostgreSQL takes the same ones for no failure.
const NOT_SYNCED: [Errno; 5] = [Errno::INVAL, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOSYS, Errno::BADF];

/// Makes the names in a folder durable. The empty path is the current folder.
///
/// A file system that cannot sync folders is told of once, as a warning of the program's logger: nothing else
/// can be done there.
///
/// # Errors
///
/// The folder is not there, or the disk fails.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let synced = observed(|| Operation::SyncFolder(folder.into()), || File::open(folder)?.sync_all());
    match synced {
        Err(error) if cannot_be_synced(&error) => {
            static IS_TOLD: AtomicBool = AtomicBool::new(false);
            if !IS_TOLD.swap(true, Ordering::Relaxed) {
                log::warn!(
                    "{}: this file system cannot sync folders ({error}); after a power failure the last files \
                     may be missing there",
                    folder.display()
                );
            }
            Ok(())
        }
        synced => synced,
    }
}

/// Whether something cannot be synced at all, as opposed to a disk that fails.
pub(crate) fn cannot_be_synced(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| NOT_SYNCED.contains(&errno))
}

/// Makes a folder, durably.
///
/// # Errors
///
/// It is there already, the one above is not, or it cannot be made.
pub fn create_folder(path: &Path) -> io::Result<()> {
    observed(|| Operation::CreateFolder(path.into()), || fs::create_dir(path))?;
    sync_above(path)
}

/// Makes a folder and all those above it that are not there, durably. One that is there is left as it is.
///
/// # Errors
///
/// One of them cannot be made.
pub fn create_folders(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        create_folders(above)?;
    }
    match create_folder(path) {
        // Another process was quicker.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Makes the name of a file or folder durable.
pub(crate) fn sync_above(path: &Path) -> io::Result<()> {
    sync_folder(path.parent().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own files: a folder of a file system without a way to sync it.
    #[test]
    fn a_folder_that_cannot_be_synced_is_no_failure_and_one_that_is_away_is() {
        let folder = Path::new("/proc/self");
        let refused = File::open(folder).unwrap().sync_all().unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::INVAL));
        sync_folder(folder).unwrap();
        assert_eq!(sync_folder(Path::new("/proc/none")).unwrap_err().kind(), ErrorKind::NotFound);
        sync_folder(Path::new("")).unwrap();
    }
}
