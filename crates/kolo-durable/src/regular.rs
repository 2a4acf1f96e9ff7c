//! Reading of regular files only: a pipe in place of a file would be waited for, and a device has no end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Opens a file to read it. A folder is opened, too; reading it is the system's error.
///
/// # Errors
///
/// The path is a pipe, a socket or a device; or the system does not open it.
pub fn open(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    match kind.is_file() || kind.is_dir() {
        true => File::open(path),
        false => Err(io::Error::other("is no regular file")),
    }
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
        fs::write(&file, "text").unwrap();
        symlink(&file, folder.path().join("link")).unwrap();
        assert_eq!(read_to_string(&folder.path().join("link")).unwrap(), "text");
        assert_eq!(read(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
