//! A disk that a test can fill up.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use tempfile::TempDir;

/// Name of the file that fills the disk.
const FILLER: &str = "filler";

/// A small file system in memory. Only the thread that makes it, and the threads and processes that this one
/// starts, see it; it disappears with them.
#[derive(Debug)]
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Makes a disk of so many MiB.
    /// Fails where the disk cannot be made, for the reason in the text: it needs root.
    pub fn new(mib: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|cause| cause.to_string())?;
        // SAFETY: the call separates mounts, and leaves the table of file descriptors alone.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|cause| format!("no mounts: {cause}"))?;
        mount(&["--make-rprivate", "/"])?;
        let (size, path) = (format!("size={mib}m"), folder.path().display().to_string());
        mount(&["-t", "tmpfs", "-o", &size, "kolo-test", &path])?;
        Ok(SmallDisk { folder })
    }

    /// Returns the path of the disk.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Fills the disk to the last byte.
    pub fn fill(&self) {
        let mut file = File::create(self.path().join(FILLER)).unwrap();
        for part in [64 << 10, 1] {
            let zeros = vec![0; part];
            while let Err(error) = fill(&mut file, &zeros) {
                assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
            }
        }
    }

    /// Frees the disk again.
    pub fn free(&self) {
        fs::remove_file(self.path().join(FILLER)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The disk disappears with the thread in any case.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

fn fill(file: &mut File, zeros: &[u8]) -> std::io::Result<()> {
    loop {
        match file.write(zeros) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn mount(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).output().map_err(|cause| format!("mount: {cause}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
