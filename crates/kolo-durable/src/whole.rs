//! Files that are written, synced and named.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::folder::{cannot_be_synced, sync_above};
use crate::operation::Operation;
use crate::recording::observed;
use crate::regular::{is_special, not_regular, open_with};

/// Writes a file, replacing an existing one, and syncs it. Its name is not durable yet: that takes a sync
/// of the folder, which may wait for more files.
///
/// # Errors
///
/// The file cannot be written; a part of it may exist.
pub fn write(path: &Path, data: &[u8]) -> io::Result<()> {
    let file = create(path)?;
    fill(file, path, data)
}

/// Does the same as [`write()`] with what `write` writes: a file need not be in memory as a whole.
///
/// # Errors
///
/// The file cannot be written; a part of it may exist.
pub fn write_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = create(path)?;
    observed(|| Operation::Write(path.into()), || write(&mut file))?;
    observed(|| Operation::SyncFile(path.into()), || file.sync_all())
}

fn create(path: &Path) -> io::Result<File> {
    let options = File::options().write(true).create(true).truncate(true).clone();
    observed(|| Operation::Create(path.into()), || open_with(path, &options))
}

/// Writes and syncs a newly created file at `path`.
///
/// # Errors
///
/// The file cannot be written; a part of it may exist.
pub fn fill(mut file: File, path: &Path, data: &[u8]) -> io::Result<()> {
    observed(|| Operation::Write(path.into()), || file.write_all(data))?;
    observed(|| Operation::SyncFile(path.into()), || file.sync_all())
}

/// Writes a file, replacing an existing one, whole or not at all, and durably. Writes `.<name>.part` first.
///
/// # Errors
///
/// The file cannot be written, or the path is a pipe, a socket or a device; what was there is still there.
pub fn replace(path: &Path, data: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    replace_through(&path.with_file_name(format!(".{name}.part")), path, data)
}

/// Replaces a file as [`replace`] does, through another draft, for files with several writing processes.
/// Fails as [`replace`] does.
pub fn replace_through(draft: &Path, path: &Path, data: &[u8]) -> io::Result<()> {
    // A file in the place of a device would mislead every program that uses it: root could put one at
    // `/dev/null`.
    if fs::symlink_metadata(path).is_ok_and(|found| is_special(found.file_type())) {
        return Err(not_regular());
    }
    if let Err(error) = write(draft, data).and_then(|()| rename(draft, path)) {
        // On a full disk a half-written draft would only take space from other files.
        let _ = fs::remove_file(draft);
        return Err(error);
    }
    sync_above(path)
}

/// Gives a file or folder another name, replacing a file that has it. The name is not durable yet. Fails as
/// [`fs::rename`] does.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    observed(|| Operation::Rename(from.into(), to.into()), || fs::rename(from, to))
}

/// Exchanges two names in one operation, so neither is ever missing. They are not durable yet.
///
/// # Errors
///
/// The file system cannot exchange names, as NFS.
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

/// Gives a file a second name, which must be new. The name is not durable yet. Fails as [`fs::hard_link`]
/// does.
pub fn hard_link(file: &Path, name: &Path) -> io::Result<()> {
    observed(|| Operation::Link(file.into(), name.into()), || fs::hard_link(file, name))
}

/// Appends all of `data` or nothing to a file that begins with `header`. A missing file is created
/// durably; the bytes are durable after [`sync_file`].
///
/// # Errors
///
/// The file cannot be written.
pub fn append(path: &Path, header: &[u8], data: &[u8]) -> io::Result<()> {
    let is_new = !path.exists();
    // Opened for each write, because the folder may have been away meanwhile.
    let open = || open_with(path, OpenOptions::new().create(true).append(true));
    let mut file = if is_new { observed(|| Operation::Create(path.into()), open)? } else { open()? };
    let before_it = file.metadata()?.len();
    let header = if before_it == 0 { header } else { b"" };
    let written = observed(|| Operation::Write(path.into()), || file.write_all(&[header, data].concat()))
        .and_then(|()| if is_new { sync_above(path) } else { Ok(()) });
    if written.is_err() {
        // A partial line would become the beginning of the next one. A new file must be new at the next
        // try, too.
        let _ = if is_new { fs::remove_file(path) } else { file.set_len(before_it) };
    }
    written
}

/// Makes bytes appended to a file durable. A device cannot be synced and need not be.
///
/// # Errors
///
/// The file does not exist, or the disk fails.
pub fn sync_file(path: &Path) -> io::Result<()> {
    let open = || open_with(path, File::options().read(true));
    match observed(|| Operation::SyncFile(path.into()), || open()?.sync_all()) {
        Err(error) if cannot_be_synced(&error) => Ok(()),
        synced => synced,
    }
}

/// Cuts a file to its first `len` bytes, durably.
///
/// # Errors
///
/// The file does not exist, or cannot be written.
pub fn truncate(path: &Path, len: u64) -> io::Result<()> {
    let file = open_with(path, File::options().write(true))?;
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
        // The draft leads to a full disk.
        std::os::unix::fs::symlink("/dev/full", place.path().join(".a.part")).unwrap();
        let error = replace(&path, b"new").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn what_is_no_file_stays_what_it_is() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(replace(&socket, b"data").unwrap_err().to_string(), "is no regular file");
        std::os::unix::net::UnixStream::connect(&socket).unwrap();
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
