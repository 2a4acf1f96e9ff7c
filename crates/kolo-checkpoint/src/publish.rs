//! A finished checkpoint gets its name: at once, also in place of another one of the same step.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::error::Error;
use crate::folder::aside;

/// Gives the checkpoint in `draft` the name `target`, durably, in place of one of the same step.
pub(crate) fn publish(folder: &Path, draft: &Path, target: &Path, step: u64) -> Result<(), Error> {
    if fs::symlink_metadata(target).is_ok_and(|found| !found.is_dir()) {
        return Err(Error::file(target, "is no checkpoint, and in the way of one; move it away"));
    }
    let swapped = target.exists() && exchange(draft, target).is_ok();
    if !swapped {
        put_aside(folder, draft, target, step)?;
    }
    sync(folder)?;
    if swapped {
        // It is the one that was replaced.
        let _ = fs::remove_dir_all(draft);
    }
    Ok(())
}

/// For file systems that cannot exchange two names, as NFS. A folder cannot be renamed over one that has
/// files, so for a moment the old checkpoint has another name, under which [`list`](crate::list) finds it.
fn put_aside(folder: &Path, draft: &Path, target: &Path, step: u64) -> Result<(), Error> {
    let aside = aside(folder, step);
    let replaces = target.exists();
    if replaces {
        let _ = fs::remove_dir_all(&aside);
        fs::rename(target, &aside).map_err(|e| Error::file(target, e))?;
    }
    if let Err(error) = fs::rename(draft, target) {
        if replaces {
            let _ = fs::rename(&aside, target);
        }
        return Err(Error::file(target, error));
    }
    if replaces {
        // Only now that the new name is durable.
        sync(folder)?;
        let _ = fs::remove_dir_all(&aside);
    }
    Ok(())
}

/// Exchanges two names in one operation: nobody ever finds one of them missing.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes the names in a folder durable.
pub(crate) fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| Error::file(folder, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_checkpoint_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let (draft, target) = (place.path().join(".draft"), place.path().join("step-00000001"));
        fs::create_dir(&draft).unwrap();
        fs::write(&target, "something else").unwrap();
        let error = publish(place.path(), &draft, &target, 1).unwrap_err().to_string();
        assert!(error.contains("step-00000001: is no checkpoint") && draft.exists(), "{error}");
    }

    #[test]
    fn a_checkpoint_takes_the_place_of_another_with_and_without_an_exchange() {
        type Publish = fn(&Path, &Path, &Path, u64) -> Result<(), Error>;
        for publish in [publish as Publish, put_aside] {
            let place = tempfile::tempdir().unwrap();
            let (draft, target) = (place.path().join(".draft"), place.path().join("step-00000001"));
            for content in ["old", "new"] {
                fs::create_dir(&draft).unwrap();
                fs::write(draft.join("file"), content).unwrap();
                publish(place.path(), &draft, &target, 1).unwrap();
                assert_eq!(fs::read_to_string(target.join("file")).unwrap(), content);
                assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing else is left");
            }
        }
    }
}
