//! The file: it has no name, so the operating system frees it when the process ends, even by a kill.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

use kolo_optim::StoreFailure;

/// An unlinked file of a fixed length, whose space is reserved. It reads as zeros where nothing was written.
#[derive(Debug)]
pub(crate) struct StateFile {
    folder: PathBuf,
    file: File,
}

impl StateFile {
    /// Creates a file of so many bytes.
    ///
    /// # Errors
    ///
    /// The folder is missing or not writable, or its disk has not enough room.
    pub(crate) fn new(folder: &Path, bytes: u64) -> Result<Self, StoreFailure> {
        let fail = |problem: String| StoreFailure { problem: format!("{}: {problem}", folder.display()) };
        let file = tempfile::tempfile_in(folder).map_err(|error| {
            fail(match error.kind() {
                ErrorKind::NotFound => {
                    "the folder for the optimizer's state does not exist; create it".into()
                }
                ErrorKind::NotADirectory => "this is no folder; give one for the optimizer's state".into(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    format!("cannot create a file for the optimizer's state ({error}); give another folder")
                }
                _ => format!("cannot create a file for the optimizer's state ({error})"),
            })
        })?;
        let space = |error: &dyn std::fmt::Display| {
            let free = fstatvfs(&file).map(|disk| disk.f_bavail * disk.f_frsize);
            let free = free.map_or(String::new(), |free| format!(", of which the disk has {free}"));
            fail(format!(
                "the optimizer's state needs {bytes} bytes{free} ({error}); make room there, or give another folder"
            ))
        };
        match reserve(&file, bytes) {
            // A file system that cannot reserve: at least it must have the room now.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let disk = fstatvfs(&file).map_err(|error| space(&error))?;
                if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes {
                    return Err(space(&Errno::NOSPC));
                }
                file.set_len(bytes).map_err(|error| space(&error))?;
            }
            Err(error) => return Err(space(&error)),
            Ok(()) => {}
        }
        Ok(StateFile { folder: folder.to_path_buf(), file })
    }

    /// Reads values at a place.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(crate) fn read(&self, place: u64, values: &mut [f32]) -> Result<(), StoreFailure> {
        let read = self.file.read_exact_at(bytemuck::cast_slice_mut(values), place);
        read.map_err(|error| self.failure("read", place, &error))
    }

    /// Writes values at a place.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn write(&self, place: u64, values: &[f32]) -> Result<(), StoreFailure> {
        let written = self.file.write_all_at(bytemuck::cast_slice(values), place);
        written.map_err(|error| self.failure("write", place, &error))
    }

    fn failure(&self, doing: &str, place: u64, error: &Error) -> StoreFailure {
        let folder = self.folder.display();
        StoreFailure {
            problem: format!(
                "cannot {doing} byte {place} of the unlinked file with the optimizer's state in {folder} ({error}); check the disk, \
                 and continue from a checkpoint"
            ),
        }
    }

    #[cfg(test)]
    pub(crate) fn cut_for_tests(&self) {
        self.file.set_len(0).unwrap();
    }
}

fn reserve(file: &File, bytes: u64) -> Result<(), Errno> {
    if bytes == 0 {
        return Ok(());
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::INTR) => {}
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_take_the_file_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let problem = |path: &Path, bytes| StateFile::new(path, bytes).unwrap_err().problem;
        let missing = folder.path().join("missing");
        let words = problem(&missing, 8);
        let expected = "missing: the folder for the optimizer's state does not exist; create it";
        assert!(words.ends_with(expected), "{words}");
        let file = folder.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        let words = problem(&file, 8);
        assert!(words.contains("file: this is no folder"), "{words}");
        // More than any disk has.
        let bytes = 1 << 60;
        let words = problem(folder.path(), bytes);
        assert!(words.contains(&format!("the optimizer's state needs {bytes} bytes")), "{words}");
        assert!(std::fs::read_dir(folder.path()).unwrap().count() == 1, "an unlinked file has no name");
    }

    #[test]
    fn what_was_not_written_is_zero() {
        let file = StateFile::new(&std::env::temp_dir(), 32).unwrap();
        file.write(8, &[1.5, f32::NAN]).unwrap();
        let mut values = [9.0; 8];
        file.read(0, &mut values).unwrap();
        assert_eq!(values.map(f32::to_bits), [0.0, 0.0, 1.5, f32::NAN, 0.0, 0.0, 0.0, 0.0].map(f32::to_bits));
        let words = file.read(16, &mut [0.0; 8]).unwrap_err().problem;
        assert!(words.starts_with("cannot read byte 16 of the unlinked file"), "{words}");
    }
}
