//! A file that exactly one of all its candidates can create.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

use kolo_durable::sync_folder;

use crate::claim::Candidate;

/// Prefix of the names of drafts that one process alone writes, before the id that [`Candidate::new_id`]
/// makes.
pub const DRAFT: &str = ".draft-";

/// Creates a file, whole and durable. Returns false if a file of that name has other bytes: of several
/// simultaneous callers on any hosts, one succeeds. So the bytes must identify their creator.
///
/// The file is written under a name of its own and gets its right name by a hard link. The link is made
/// once, even if the server's answer is lost and the request is repeated (open(2), on `O_EXCL` and NFS).
/// A file system without hard links has to use `O_EXCL`, and others may see a part of the file.
///
/// # Errors
///
/// The file, or its draft in the same folder, cannot be written.
pub fn create_exclusively(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let draft = folder.join(format!("{DRAFT}{}", Candidate::new_id()));
    let linked = match create_new(&draft, bytes) {
        Ok(_) => kolo_durable::hard_link(&draft, path),
        Err(error) => Err(error),
    };
    // The draft is a half-written file on a full disk, or a second name; nothing needs it, and a draft that
    // stays does not change what has been created.
    let _ = fs::remove_file(&draft);
    let created = match linked {
        Ok(()) => Ok(true),
        // The first answer may have been lost, so the file may be this one.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            Ok(kolo_durable::read(path).is_ok_and(|there| there == bytes))
        }
        // The file system has no hard links, such as FAT.
        Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {
            create_new(path, bytes)
        }
        Err(e) => Err(e),
    }?;
    if created {
        sync_folder(folder)?;
    }
    Ok(created)
}

/// Writes a new file; returns false if it exists.
pub(crate) fn create_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        opened => fill(opened?, path, bytes).map(|()| true),
    }
}

/// Writes a new file, or removes it: on a full disk a half-written file would keep a name that others need.
fn fill(file: File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let filled = kolo_durable::fill(file, path, bytes);
    if filled.is_err() {
        // If that fails too, other processes find an unreadable file.
        let _ = fs::remove_file(path);
    }
    filled
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
