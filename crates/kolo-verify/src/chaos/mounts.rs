//! Mounts that no other program sees. They vanish with this program and the runs it started, however these
//! end.

use std::fmt::Display;
use std::path::Path;
use std::process::Command;

use kolo_check::probes::Memory;
use kolo_program::Failure;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread private mounts, which its later threads and processes share. Errors: mounting is
/// not permitted; the error names the option that needs it.
pub(super) fn own_mounts(option: &str) -> Result<(), Failure> {
    let needs_root =
        |cause: &dyn Display| Failure::work(format!("{option} needs root, which may mount: {cause}"));
    // SAFETY: the call separates mounts, not the table of file descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|cause| needs_root(&cause))?;
    command("mount", &["--make-rprivate", "/"]).map_err(|cause| needs_root(&cause))
}

/// Mounts a file system in memory of so many MiB on an existing folder. Errors: [`check_room`] refuses it; or
/// `mount` failed, with its message.
pub(super) fn mount_memory(folder: &Path, mib: u64) -> Result<(), String> {
    check_room(mib, &Memory::here())?;
    let (size, folder) = (format!("size={mib}m,mode=0700"), folder.display().to_string());
    command("mount", &["-t", "tmpfs", "-o", &size, "kolo-chaos", &folder])
}

/// Refuses a disk in memory that would, once full, take more than half of what this program can get: others
/// might be killed.
fn check_room(mib: u64, memory: &Memory) -> Result<(), String> {
    let available = memory.free() >> 20;
    match mib > available / 2 {
        true => Err(format!(
            "--disk-mb {mib}: Kolo fills this disk, and {available} MiB of memory are available; give at most half of them"
        )),
        false => Ok(()),
    }
}

/// Removes a mount, even one in use. Errors: `umount` failed; contains its message.
pub(super) fn unmount(folder: &Path) -> Result<(), String> {
    command("umount", &["--lazy", &folder.display().to_string()])
}

/// Runs a system program. Errors: the program failed; contains its arguments and message.
pub(super) fn command(program: &str, words: &[&str]) -> Result<(), String> {
    let told = || format!("{program} {}", words.join(" "));
    let output =
        Command::new(program).args(words).output().map_err(|cause| format!("{}: {cause}", told()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", told(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use kolo_check::probes::Limit;

    use super::*;

    #[test]
    fn a_disk_that_could_take_all_memory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = mount_memory(folder.path(), u64::MAX).unwrap_err();
        assert!(
            error.contains(&u64::MAX.to_string()) && error.contains("MiB of memory are available"),
            "{error}"
        );
        // A control group may leave less than the host has.
        let host = Memory { available: 8 << 30, limits: Vec::new() };
        let limit = Limit { group: "job".into(), bytes: 2 << 30, left: 1 << 30 };
        let limited = Memory { limits: vec![limit], ..host.clone() };
        assert_eq!(check_room(4 << 10, &host), Ok(()));
        assert_eq!(check_room(512, &limited), Ok(()));
        assert!(check_room(513, &limited).unwrap_err().contains("1024 MiB of memory are available"));
    }
}
