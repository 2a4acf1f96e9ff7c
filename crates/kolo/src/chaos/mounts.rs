//! Mounts that nobody else sees, and that are gone with this program and the runs it has started, however
//! they end.

use std::fmt::Display;
use std::path::Path;
use std::process::Command;

use kolo::Failure;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread mounts of its own, which threads and processes that it starts share.
///
/// # Errors
///
/// That is not allowed; names the option that wants it.
pub(super) fn own_mounts(option: &str) -> Result<(), Failure> {
    let needs_root =
        |cause: &dyn Display| Failure::work(format!("{option} needs root, which may mount: {cause}"));
    // SAFETY: it parts mounts, and no table of descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|cause| needs_root(&cause))?;
    command("mount", &["--make-rprivate", "/"]).map_err(|cause| needs_root(&cause))
}

/// Mounts a file system in memory of so many MiB on a folder that is there.
///
/// # Errors
///
/// The words of `mount`.
pub(super) fn mount_memory(folder: &Path, mib: u64) -> Result<(), String> {
    let (size, folder) = (format!("size={mib}m,mode=0700"), folder.display().to_string());
    command("mount", &["-t", "tmpfs", "-o", &size, "kolo-chaos", &folder])
}

/// Takes a mount away, also where it is still used.
///
/// # Errors
///
/// The words of `umount`.
pub(super) fn unmount(folder: &Path) -> Result<(), String> {
    command("umount", &["--lazy", &folder.display().to_string()])
}

/// Runs a program of the system.
///
/// # Errors
///
/// What it says, with its arguments.
pub(super) fn command(program: &str, words: &[&str]) -> Result<(), String> {
    let told = || format!("{program} {}", words.join(" "));
    let output =
        Command::new(program).args(words).output().map_err(|cause| format!("{}: {cause}", told()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", told(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
