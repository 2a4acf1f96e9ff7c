//! The file: it has no name, so the operating system frees it when the process ends, even by a kill.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstatvfs, memfd_create, statfs};
use rustix::io::Errno;

use kolo_optim::{StoreFailure, StoreFault};

/// An unlinked file whose space is reserved. It reads as zeros where nothing was written since it was made.
#[derive(Debug)]
pub(crate) struct StateFile {
    folder: PathBuf,
    file: File,
    /// True if the file is in memory, because the disk had no room for a larger one.
    is_memory: bool,
}

impl StateFile {
    /// Creates an empty file. Errors: the folder is missing or not writable.
    pub(crate) fn new(folder: &Path) -> Result<Self, StoreFailure> {
        let problem = |problem| StoreFailure {
            fault: StoreFault::Folder,
            problem: format!("{}: {problem}", folder.display()),
        };
        let file = create_in(folder).map_err(problem)?;
        Ok(StateFile { folder: folder.to_path_buf(), file, is_memory: false })
    }

    /// Creates a file of so many bytes in memory, which is taken page by page when it is written. Errors: the
    /// system refuses such a file.
    pub(crate) fn in_memory(folder: &Path, bytes: u64) -> Result<Self, Error> {
        let file = File::from(memfd_create("kolo-offload", MemfdFlags::CLOEXEC)?);
        file.set_len(bytes)?;
        Ok(StateFile { folder: folder.to_path_buf(), file, is_memory: true })
    }

    /// Changes the length, and reserves what is added. What was written stays in the file. Errors: the disk
    /// has not enough room; the length is unchanged then.
    pub(crate) fn resize(&self, bytes: u64) -> Result<(), StoreFailure> {
        let before = self.file.metadata().map_or(0, |file| file.len());
        if bytes <= before || self.is_memory {
            return self.file.set_len(bytes).map_err(|error| self.no_room(bytes, error));
        }
        let disk = fstatvfs(&self.file).map_err(|error| self.no_room(bytes, error))?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes - before {
            // A file system may take all there is before it refuses.
            return Err(self.no_room(bytes, Errno::NOSPC));
        }
        match reserve(&self.file, bytes) {
            // A file system that cannot reserve: at least it has the room now.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.file.set_len(bytes).map_err(|error| self.no_room(bytes, error))
            }
            Err(error) => {
                let failure = self.no_room(bytes, error);
                // Some file systems keep what they could reserve; the caller goes on with the old length.
                let _ = self.file.set_len(before);
                Err(failure)
            }
            Ok(()) => Ok(()),
        }
    }

    fn no_room(&self, bytes: u64, error: impl Into<Error>) -> StoreFailure {
        let (folder, error) = (self.folder.display(), error.into());
        let needs = format!("{folder}: this worker's part of the optimizer's state needs {bytes} bytes");
        let problem = match error.kind() {
            ErrorKind::FileTooLarge => {
                format!("{needs}, and no file of this process may be so large ({error}); raise `ulimit -f`")
            }
            _ => {
                let free = fstatvfs(&self.file).map(|disk| disk.f_bavail * disk.f_frsize);
                let free = free.map_or(String::new(), |free| format!(", and the disk has {free} left"));
                format!(
                    "{needs}{free} ({error}); make room there for each worker of this host, or give another folder"
                )
            }
        };
        StoreFailure { fault: StoreFault::NoRoom, problem }
    }

    /// Reads values at a place. Errors: the file cannot be read.
    pub(crate) fn read(&self, place: u64, values: &mut [f32]) -> Result<(), StoreFailure> {
        let read = self.file.read_exact_at(bytemuck::cast_slice_mut(values), place);
        read.map_err(|error| self.failure("read", place, &error))
    }

    /// Writes values at a place.
    pub(crate) fn write(&self, place: u64, values: &[f32]) -> Result<(), StoreFailure> {
        let written = self.file.write_all_at(bytemuck::cast_slice(values), place);
        written.map_err(|error| self.failure("write", place, &error))
    }

    fn failure(&self, doing: &str, place: u64, error: &Error) -> StoreFailure {
        let folder = self.folder.display();
        StoreFailure {
            fault: StoreFault::Lost,
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

/// Checks that a folder can have the file of an optimizer's state; the room for it is seen when it is made.
///
/// # Errors
///
/// The folder is missing or not writable: the rest of a sentence about it.
pub fn check_folder(folder: &Path) -> Result<(), String> {
    create_in(folder).map(drop)
}

/// Returns true if the files of a folder are in memory.
pub fn is_in_memory(folder: &Path) -> bool {
    // Magic numbers of tmpfs, such as /dev/shm, and ramfs (statfs(2)).
    statfs(folder).is_ok_and(|system| [0x0102_1994, 0x8584_58f6].contains(&(system.f_type as u64)))
}

fn create_in(folder: &Path) -> Result<File, String> {
    tempfile::tempfile_in(folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound if !folder.is_dir() => {
            "the folder for the optimizer's state does not exist; create it".into()
        }
        ErrorKind::NotADirectory => "this is no folder; give one for the optimizer's state".into(),
        _ => format!("cannot create a file for the optimizer's state ({error}); give another folder"),
    })
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
        let problem = |path: &Path, bytes| {
            let failure = StateFile::new(path).and_then(|file| file.resize(bytes)).unwrap_err();
            (failure.fault, failure.problem)
        };
        let missing = folder.path().join("missing");
        let (fault, words) = problem(&missing, 8);
        let expected = "missing: the folder for the optimizer's state does not exist; create it";
        assert!(fault == StoreFault::Folder && words.ends_with(expected), "{words}");
        let file = folder.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        let (fault, words) = problem(&file, 8);
        assert!(fault == StoreFault::Folder && words.contains("file: this is no folder"), "{words}");
        // A folder that has no files of its own.
        let (fault, words) = problem("/proc".as_ref(), 8);
        assert!(fault == StoreFault::Folder && words.starts_with("/proc: cannot create a file"), "{words}");
        // More than any disk has.
        let bytes = 1 << 60;
        let (fault, words) = problem(folder.path(), bytes);
        let expected =
            format!("this worker's part of the optimizer's state needs {bytes} bytes, and the disk has");
        assert!(fault == StoreFault::NoRoom && words.contains(&expected), "{words}");
        let file = StateFile::new(folder.path()).unwrap();
        let words = file.no_room(8, Errno::FBIG).problem;
        assert!(words.ends_with("; raise `ulimit -f`"), "{words}");
        assert!(std::fs::read_dir(folder.path()).unwrap().count() == 1, "an unlinked file has no name");
    }

    #[test]
    fn what_was_not_written_is_zero() {
        let file = StateFile::new(&std::env::temp_dir()).unwrap();
        file.resize(32).unwrap();
        file.write(8, &[1.5, f32::NAN]).unwrap();
        let mut values = [9.0; 8];
        file.read(0, &mut values).unwrap();
        assert_eq!(values.map(f32::to_bits), [0.0, 0.0, 1.5, f32::NAN, 0.0, 0.0, 0.0, 0.0].map(f32::to_bits));
        let words = file.read(16, &mut [0.0; 8]).unwrap_err().problem;
        assert!(words.starts_with("cannot read byte 16 of the unlinked file"), "{words}");
    }
}
