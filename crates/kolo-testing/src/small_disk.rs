//! A disk that is full when a test wants it to be.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use tempfile::TempDir;

/// The file that fills it.
const FILLER: &str = "filler";

/// A small file system in memory. The thread that makes it, and what that starts, see it; it is gone with
/// them.
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Makes one of so many MiB.
    ///
    /// # Errors
    ///
    /// Why it cannot be had here: it takes root.
    pub fn new(mib: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|cause| cause.to_string())?;
        // SAFETY: it parts mounts, and no table of descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|cause| format!("no mounts: {cause}"))?;
        mount(&["--make-rprivate", "/"])?;
        let (size, path) = (format!("size={mib}m"), folder.path().display().to_string());
        mount(&["-t", "tmpfs", "-o", &size, "kolo-test", &path])?;
        Ok(SmallDisk { folder })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// From now on not one more byte can be written.
    ///
    /// # Panics
    ///
    /// Another error comes than that of a full disk.
    pub fn fill(&self) {
        let mut file = File::create(self.path().join(FILLER)).unwrap();
        for part in [64 << 10, 1] {
            let zeros = vec![0; part];
            while let Err(error) = fill(&mut file, &zeros) {
                assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
            }
        }
    }

    /// There is room again.
    ///
    /// # Panics
    ///
    /// It was not full.
    pub fn free(&self) {
        fs::remove_file(self.path().join(FILLER)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // It goes with the thread in any case.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

/// Writes until the disk is full.
fn fill(file: &mut File, zeros: &[u8]) -> std::io::Result<()> {
    loop {
        match file.write(zeros) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn mount(words: &[&str]) -> Result<(), String> {
    let output = Command::new("mount").args(words).output().map_err(|cause| format!("mount: {cause}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
