//! Files that are written, synced and named.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::folder::{cannot_be_synced, sync_above};
use crate::operation::Operation;
use crate::recording::observed;

/// Writes a file, in place of one that is there, and syncs it. Its name is not durable yet: that is for the
/// sync of the folder, which may have more files to wait for.
///
/// # Errors
///
/// It cannot be written; half of it may be there.
pub fn write(path: &Path, data: &[u8]) -> io::Result<()> {
    let file = observed(|| Operation::Create(path.into()), || File::create(path))?;
    fill(file, path, data)
}

/// Writes and syncs a file that has just been made, at `path`.
///
/// # Errors
///
/// It cannot be written; half of it may be there.
pub fn fill(mut file: File, path: &Path, data: &[u8]) -> io::Result<()> {
    observed(|| Operation::Write(path.into()), || file.write_all(data))?;
    observed(|| Operation::SyncFile(path.into()), || file.sync_all())
}

/// Writes a file, in place of one that is there, whole or not at all, and durably: as `.<name>.part` first.
///
/// # Errors
///
/// It cannot be written; what was there before still is.
pub fn replace(path: &Path, data: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    replace_through(&path.with_file_name(format!(".{name}.part")), path, data)
}

/// As [`replace`], by a draft beside it of another name: where several processes may write the file at once.
///
/// # Errors
///
/// As [`replace`].
pub fn replace_through(draft: &Path, path: &Path, data: &[u8]) -> io::Result<()> {
    if let Err(error) = write(draft, data).and_then(|()| rename(draft, path)) {
        // On a full disk half a file would only stand in the way of the others.
        let _ = fs::remove_file(draft);
        return Err(error);
    }
    sync_above(path)
}

/// Gives a file or folder another name, in place of a file that has it. The name is not durable yet.
///
/// # Errors
///
/// As [`fs::rename`].
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    observed(|| Operation::Rename(from.into(), to.into()), || fs::rename(from, to))
}

/// Exchanges two names in one operation: nobody ever finds one of them missing. They are not durable yet.
///
/// # Errors
///
/// The file system cannot do that, as NFS.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    observed(|| Operation::Exchange(one.into(), other.into()), || exchange_names(one, other))
}

#[cfg(target_os = "linux")]
fn exchange_names(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

#[cfg(not(target_os = "linux"))]
fn exchange_names(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Gives a file a second name, which nothing else may have. It is not durable yet.
///
/// # Errors
///
/// As [`fs::hard_link`].
pub fn hard_link(file: &Path, name: &Path) -> io::Result<()> {
    observed(|| Operation::Link(file.into(), name.into()), || fs::hard_link(file, name))
}

/// Adds to a file, which begins with `header`, all of `data` or nothing. A file that was not there is made
/// durably; the bytes are durable after [`sync_file`].
///
/// # Errors
///
/// It cannot be written.
pub fn append(path: &Path, header: &[u8], data: &[u8]) -> io::Result<()> {
    let is_new = !path.exists();
    // Opened for each write, because the folder may have been away meanwhile.
    let open = || OpenOptions::new().create(true).append(true).open(path);
    let mut file = if is_new { observed(|| Operation::Create(path.into()), open)? } else { open()? };
    let before_it = file.metadata()?.len();
    let header = if before_it == 0 { header } else { b"" };
    let written = observed(|| Operation::Write(path.into()), || file.write_all(&[header, data].concat()))
        .and_then(|()| if is_new { sync_above(path) } else { Ok(()) });
    if written.is_err() {
        // Half a line would be the next one's beginning. A new file is one at the next try, too.
        let _ = if is_new { fs::remove_file(path) } else { file.set_len(before_it) };
    }
    written
}

/// Makes what was added to a file durable. What is no plain file, as a pipe, cannot be synced, and needs not.
///
/// # Errors
///
/// It is not there, or the disk fails.
pub fn sync_file(path: &Path) -> io::Result<()> {
    match observed(|| Operation::SyncFile(path.into()), || File::open(path)?.sync_all()) {
        Err(error) if cannot_be_synced(&error) => Ok(()),
        synced => synced,
    }
}

/// Cuts a file to its first `len` bytes, durably.
///
/// # Errors
///
/// It is not there, or cannot be written.
pub fn truncate(path: &Path, len: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    observed(|| Operation::Write(path.into()), || file.set_len(len))?;
    observed(|| Operation::SyncFile(path.into()), || file.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_leaves_what_was_there_before() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a");
        replace(&path, b"old").unwrap();
        // Its draft is a disk that is full.
        std::os::unix::fs::symlink("/dev/full", place.path().join(".a.part")).unwrap();
        let error = replace(&path, b"new").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_header_comes_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a");
        for line in ["1\n", "2\n"] {
            append(&path, b"head\n", line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "head\n1\n2\n");
        truncate(&path, 5).unwrap();
        sync_file(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "head\n");
    }
}
