//! The files of a run.

use std::path::{Path, PathBuf};

use kolo_program::Failure;
use kolo_program::output::warn;
use tempfile::TempDir;

use super::disk::SmallDisk;
use super::hosts::Hosts;
use super::mounts::command;

const AIMS: &str = "aims";

/// Folder for the files of a run, removed on drop.
pub(super) struct Place {
    /// Disk of the run folder, if it has one of its own.
    pub(super) disk: Option<SmallDisk>,
    /// Hosts of the nodes, if each has one of its own.
    pub(super) hosts: Option<Hosts>,
    folder: TempDir,
}

impl Place {
    /// Makes a new place, with a disk of `disk` MiB and with `hosts` hosts if given.
    pub(super) fn new(name: &str, disk: Option<u64>, hosts: Option<usize>) -> Result<Place, Failure> {
        let made = tempfile::Builder::new().prefix(&format!("kolo-chaos-{name}-")).tempdir();
        let folder = made.map_err(|e| Failure::work(format!("cannot make a folder: {e}")))?;
        let aims = folder.path().join(AIMS);
        std::fs::create_dir(&aims).map_err(|e| Failure::work(format!("{}: {e}", aims.display())))?;
        let disk = disk.map(|mib| SmallDisk::new(folder.path().join("disk"), mib)).transpose()?;
        let hosts = hosts.map(Hosts::new).transpose()?;
        Ok(Place { disk, hosts, folder })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The run folder.
    pub(super) fn run(&self) -> PathBuf {
        self.disk.as_ref().map_or(self.path(), SmallDisk::folder).join("run")
    }

    /// The trace of a user's own program.
    pub(super) fn trace(&self) -> PathBuf {
        self.path().join("trace.jsonl")
    }

    /// Folder with the moments at which workers die.
    pub(super) fn aims(&self) -> PathBuf {
        self.path().join(AIMS)
    }

    /// The program of the run, in a place where it may be replaced.
    pub(super) fn program(&self) -> PathBuf {
        self.path().join("kolo")
    }

    /// The output of a node's launcher.
    pub(super) fn log(&self, node: usize) -> PathBuf {
        self.path().join(format!("output-{node}"))
    }

    /// Keeps all files, also those on the disk, and returns their folder.
    pub(super) fn keep(self) -> PathBuf {
        if self.disk.is_some() {
            let words = [self.run(), self.path().to_owned()].map(|path| path.display().to_string());
            if let Err(cause) = command("cp", &["-r", &words[0], &words[1]]) {
                warn(&format!("the run folder is not kept: {cause}"));
            }
        }
        let Place { disk, hosts, folder } = self;
        drop((disk, hosts));
        folder.keep()
    }
}
