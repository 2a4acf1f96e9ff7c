//! Folders: created durably, and synced if the file system can do that.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::operation::Operation;
use crate::recording::observed;
use crate::regular::open_with;

/// Errors of file systems that do not sync folders or other special files: some FUSE and network file
/// systems. PostgreSQL ignores the same errors.
const NOT_SYNCED: [Errno; 5] = [Errno::INVAL, Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOSYS, Errno::BADF];

/// Makes the names in a folder durable. The empty path is the current folder.
///
/// If the file system cannot sync folders, this logs one warning and succeeds: nothing else can be done.
///
/// # Errors
///
/// The folder does not exist, or the disk fails.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let open = || open_with(folder, File::options().read(true));
    let synced = observed(|| Operation::SyncFolder(folder.into()), || open()?.sync_all());
    match synced {
        Err(error) if cannot_be_synced(&error) => {
            static HAS_WARNED: AtomicBool = AtomicBool::new(false);
            if !HAS_WARNED.swap(true, Ordering::Relaxed) {
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

/// Returns true if the file cannot be synced at all, as opposed to a failing disk.
pub(crate) fn cannot_be_synced(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| NOT_SYNCED.contains(&errno))
}

/// Creates a folder, durably.
///
/// # Errors
///
/// The folder exists, its parent does not, or it cannot be created.
pub fn create_folder(path: &Path) -> io::Result<()> {
    observed(|| Operation::CreateFolder(path.into()), || fs::create_dir(path))?;
    sync_above(path)
}

/// Creates a folder and all missing parents, durably. Existing folders stay as they are.
///
/// # Errors
///
/// One of the folders cannot be created.
pub fn create_folders(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        create_folders(above)?;
    }
    match create_folder(path) {
        // Another process was faster.
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

    /// `/proc` is a file system that cannot sync folders.
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
