//! A small disk that is full for a while.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use kolo_program::Failure;

use super::mounts::{mount_memory, unmount};

/// Name of the file that fills the disk.
const FILLER: &str = "filler";
/// Bytes of each write, by size: the last ones are as small as the file system's blocks.
const PARTS: [usize; 3] = [1 << 20, 64 << 10, 1 << 10];

/// A file system in memory, unmounted on drop.
pub(super) struct SmallDisk {
    folder: PathBuf,
    /// Thread that removes the filler.
    freeing: Option<JoinHandle<io::Result<()>>>,
}

impl SmallDisk {
    /// Mounts the disk on a new folder, in [private mounts](super::mounts::own_mounts).
    pub(super) fn new(folder: PathBuf, mib: u64) -> Result<SmallDisk, Failure> {
        let fail = |cause: String| Failure::work(format!("cannot make a disk of {mib} MiB: {cause}"));
        fs::create_dir(&folder).map_err(|e| fail(e.to_string()))?;
        mount_memory(&folder, mib).map_err(fail)?;
        Ok(SmallDisk { folder, freeing: None })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fills the disk and frees it after `time`, without waiting for that.
    pub(super) fn fill(&mut self, time: Duration) -> io::Result<()> {
        self.wait_for_room()?;
        let filler = self.folder.join(FILLER);
        fill(&filler)?;
        let free = move || {
            sleep(time);
            fs::remove_file(filler)
        };
        self.freeing = Some(std::thread::Builder::new().name("kolo-chaos-disk".into()).spawn(free)?);
        Ok(())
    }

    /// Waits until the filler is gone.
    pub(super) fn wait_for_room(&mut self) -> io::Result<()> {
        let freed = self.freeing.take().map(JoinHandle::join);
        freed.unwrap_or(Ok(Ok(()))).unwrap_or(Err(io::Error::other("the thread that makes room panicked")))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmounts the disk in any case.
        let _ = self.wait_for_room();
        let _ = unmount(&self.folder);
    }
}

/// Writes a file until the disk has no byte left.
fn fill(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    for part in PARTS {
        let zeros = vec![0; part];
        loop {
            match file.write(&zeros) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::StorageFull => break,
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::mounts::own_mounts;

    /// Runs in a thread of its own, so that the other tests keep their mounts.
    #[test]
    fn a_disk_is_full_for_a_while() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("disk");
        let filled = std::thread::spawn(move || {
            let Err(refused) = own_mounts("--disk-mb") else {
                let mut disk = SmallDisk::new(folder.clone(), 1).unwrap();
                disk.fill(Duration::from_millis(50)).unwrap();
                let full = fs::write(folder.join("a"), "b").unwrap_err();
                disk.wait_for_room().unwrap();
                fs::write(folder.join("a"), "b").unwrap();
                drop(disk);
                return Ok((full.kind(), fs::read_dir(&folder).unwrap().count()));
            };
            Err(refused.to_string())
        });
        match filled.join().unwrap() {
            Ok(seen) => assert_eq!(seen, (ErrorKind::StorageFull, 0)),
            Err(refused) => assert!(refused.starts_with("--disk-mb needs root"), "{refused}"),
        }
    }
}
