//! Atomic publication of a finished checkpoint, even if it replaces one of the same step.

use std::fs;
use std::path::Path;

use kolo_durable::{exchange, rename, sync_folder};

use crate::error::Error;
use crate::folder::aside;

/// Renames the checkpoint in `draft` to `target`, durably, replacing one of the same step.
pub(crate) fn publish(folder: &Path, draft: &Path, target: &Path, step: u64) -> Result<(), Error> {
    if fs::symlink_metadata(target).is_ok_and(|found| !found.is_dir()) {
        return Err(Error::file(target, "is not a checkpoint, but has the name of one; move it away"));
    }
    let swapped = target.exists() && exchange(draft, target).is_ok();
    if !swapped {
        put_aside(folder, draft, target, step)?;
    }
    sync(folder)?;
    if swapped {
        // After the exchange, the draft is the replaced checkpoint.
        let _ = fs::remove_dir_all(draft);
    }
    Ok(())
}

/// Publishes on file systems that cannot exchange two names, such as NFS. A folder cannot be renamed over one
/// that has files, so the old checkpoint briefly has another name, under which [`list`](crate::list) finds
/// it.
fn put_aside(folder: &Path, draft: &Path, target: &Path, step: u64) -> Result<(), Error> {
    let aside = aside(folder, step);
    let replaces = target.exists();
    if replaces {
        let _ = fs::remove_dir_all(&aside);
        rename(target, &aside).map_err(|e| Error::file(target, e))?;
    }
    if let Err(error) = rename(draft, target) {
        if replaces {
            let _ = fs::rename(&aside, target);
        }
        return Err(Error::file(target, error));
    }
    if replaces {
        // The new name must be durable before the old checkpoint goes.
        sync(folder)?;
        let _ = fs::remove_dir_all(&aside);
    }
    Ok(())
}

pub(crate) fn sync(folder: &Path) -> Result<(), Error> {
    sync_folder(folder).map_err(|e| Error::file(folder, e))
}

#[cfg(test)]
mod tests {
    use std::io;

    use kolo_durable::Operation;
    use kolo_durable::recording::{Recording, mistakes};

    use super::*;
    use crate::guard::Guard;
    use crate::{Snapshot, Writer};

    type Writes = fn(&Path);

    /// After a power failure at any point, no name may refer to unsynced contents, with any writer and any
    /// file system.
    #[test]
    fn published_names_are_durable() {
        fn write(folder: &Path, step: u64) {
            let writer = Writer::guarded(folder, 2, Guard::none()).unwrap();
            writer.put(Snapshot::for_tests(step));
            writer.finish().unwrap();
        }
        let table: [(&str, Writes); 4] = [
            ("a new folder", |place| write(&place.join("checkpoints"), 1)),
            ("folders of a program", |place| drop(Snapshot::for_tests(1).write(&place.join("a/b")).unwrap())),
            ("the oldest goes", |place| (1..=3).for_each(|step| write(&place.join("checkpoints"), step))),
            ("in place of one", |place| (1..=2).for_each(|_| write(&place.join("checkpoints"), 7))),
        ];
        let lacks_exchange = |operation: &Operation| {
            let is_exchange = matches!(operation, Operation::Exchange(..));
            is_exchange.then(|| io::Error::from(io::ErrorKind::InvalidInput))
        };
        for (name, writes) in table {
            for has_exchange in [true, false] {
                let place = tempfile::tempdir().unwrap();
                let recording = Recording::failing(place.path(), move |operation| {
                    lacks_exchange(operation).filter(|_| !has_exchange)
                });
                writes(place.path());
                let found = mistakes(&recording.operations(), |_| true);
                assert!(found.is_empty(), "{name}: {found:?}");
            }
        }
    }

    /// FUSE and some network file systems reject an fsync of a folder, which is fine; a failing disk is not.
    #[test]
    fn a_rejected_folder_sync_does_not_prevent_writing() {
        for (errno, is_written) in [(22, true), (95, true), (5, false)] {
            let place = tempfile::tempdir().unwrap();
            let _recording = Recording::failing(place.path(), move |operation| {
                let is_sync = matches!(operation, Operation::SyncFolder(_));
                is_sync.then(|| io::Error::from_raw_os_error(errno))
            });
            let written = Snapshot::for_tests(1).write(place.path());
            assert_eq!(written.is_ok(), is_written, "{errno}: {written:?}");
        }
    }

    #[test]
    fn other_files_are_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let (draft, target) = (place.path().join(".draft"), place.path().join("step-00000001"));
        fs::create_dir(&draft).unwrap();
        fs::write(&target, "something else").unwrap();
        let error = publish(place.path(), &draft, &target, 1).unwrap_err().to_string();
        assert!(error.contains("step-00000001: is not a checkpoint") && draft.exists(), "{error}");
    }

    #[test]
    fn a_checkpoint_replaces_another_with_and_without_an_exchange() {
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
