//! Opening of files, and of nothing that would be waited for: a pipe or a socket, whose other end may never
//! come. A device has no end, so it is not read either.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a file to read it. A folder is opened, too; reading it is the system's error.
///
/// # Errors
///
/// The path is a pipe, a socket or a device; or the system does not open it.
pub fn open(path: &Path) -> io::Result<File> {
    open_if(path, File::options().read(true), |kind| kind.is_file() || kind.is_dir())
}

/// Opens a file as `options` say, such as to append to it, or to create it. A device is opened, too: its user
/// may have linked `/dev/null` there.
///
/// # Errors
///
/// The path is a pipe or a socket; or the system does not open it.
pub fn open_with(path: &Path, options: &OpenOptions) -> io::Result<File> {
    open_if(path, options, |kind| !kind.is_fifo() && !kind.is_socket())
}

/// Opens what does not exist, which `options` may create, or is of a permitted kind.
fn open_if(path: &Path, options: &OpenOptions, permits: impl Fn(FileType) -> bool) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(found) if !permits(found.file_type()) => Err(not_regular()),
        _ => options.open(path),
    }
}

/// Returns true for a device, a pipe or a socket.
pub(crate) fn is_special(kind: FileType) -> bool {
    !kind.is_file() && !kind.is_dir() && !kind.is_symlink()
}

pub(crate) fn not_regular() -> io::Error {
    io::Error::other("is no regular file")
}

/// Returns the bytes of a file.
///
/// # Errors
///
/// Same as [`open`]; or the file cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the text of a file.
///
/// # Errors
///
/// Same as [`read`]; or the file is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    io::read_to_string(open(path)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn pipes_and_devices_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, device, file) =
            (folder.path().join("pipe"), folder.path().join("device"), folder.path().join("file"));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        symlink("/dev/zero", &device).unwrap();
        for path in [&pipe, &device] {
            assert_eq!(read(path).unwrap_err().to_string(), "is no regular file");
            assert_eq!(read_to_string(path).unwrap_err().to_string(), "is no regular file");
        }
        let writes: [fn(&Path) -> io::Result<()>; 6] = [
            |path| crate::write(path, b"x"),
            |path| crate::write_with(path, |_| Ok(())),
            |path| crate::append(path, b"", b"x"),
            |path| crate::truncate(path, 0),
            crate::sync_file,
            crate::sync_folder,
        ];
        for write in writes {
            assert_eq!(write(&pipe).unwrap_err().to_string(), "is no regular file");
        }
        symlink("/dev/null", folder.path().join("null")).unwrap();
        crate::append(&folder.path().join("null"), b"", b"x").unwrap();
        crate::sync_file(&folder.path().join("null")).unwrap();
        fs::write(&file, "text").unwrap();
        symlink(&file, folder.path().join("link")).unwrap();
        assert_eq!(read_to_string(&folder.path().join("link")).unwrap(), "text");
        assert_eq!(read(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
