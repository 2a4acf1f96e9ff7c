//! A file that exactly one of all that want it can make.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

use kolo_durable::sync_folder;

use crate::claim::Candidate;

/// Makes a file, whole and durable. False if there is one of that name with other bytes: of several that try
/// at the same time, on whatever hosts, one succeeds. So the bytes must tell who has made it.
///
/// It is written under a name of its own and gets its right name by a hard link: a name is given once, also
/// where the answer is lost and the question asked again (open(2), on `O_EXCL` and NFS). Where the file
/// system has no hard links `O_EXCL` has to do, and others may see a part of it.
///
/// # Errors
///
/// The file, or another one beside it, cannot be written.
pub fn create_exclusively(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let draft = folder.join(format!(".draft-{}", Candidate::new_id()));
    let linked = match create_new(&draft, bytes) {
        Ok(_) => kolo_durable::hard_link(&draft, path),
        Err(error) => Err(error),
    };
    // Half a file on a full disk, or a second name: of no use to anybody.
    let removed = fs::remove_file(&draft);
    let created = match linked {
        Ok(()) => removed.map(|()| true),
        // The first answer may have been lost, and the file be this one.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            Ok(fs::read(path).is_ok_and(|there| there == bytes))
        }
        Err(e) if has_no_links(&e) => create_new(path, bytes),
        Err(e) => Err(e),
    }?;
    if created {
        sync_folder(folder)?;
    }
    Ok(created)
}

/// Writes a file that nobody else has made; false if there is one.
pub(crate) fn create_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        opened => fill(opened?, path, bytes).map(|()| true),
    }
}

/// Writes a file that has just been made, or removes it: on a full disk half a file would have a name that
/// nobody else can have.
fn fill(file: File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let filled = kolo_durable::fill(file, path, bytes);
    if filled.is_err() {
        // Where that fails too, others find a file that cannot be read.
        let _ = fs::remove_file(path);
    }
    filled
}

/// Whether a file system has no hard links, as FAT.
fn has_no_links(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_file_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claim");
        fs::write(&path, "half").unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = fill(full, &path, b"a claim").unwrap_err();
        assert!(error.kind() == ErrorKind::StorageFull && !path.exists(), "{error}");
    }
}
