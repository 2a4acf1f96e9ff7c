//! Files of a checkpoint as its manifest lists them: each is compared with its entry before use.

#[cfg(test)]
use std::cell::Cell;
use std::io::{ErrorKind, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::hex;
use crate::manifest::FileEntry;

/// Number of bytes hashed at a time.
const BLOCK: usize = 1 << 20;

#[cfg(test)]
thread_local! {
    /// Number of files read on this thread.
    pub(crate) static SCANNED: Cell<usize> = const { Cell::new(0) };
}

/// Reads a file of a checkpoint block by block and compares it with its manifest entry.
pub(crate) fn scan(folder: &Path, entry: &FileEntry, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
    #[cfg(test)]
    SCANNED.set(SCANNED.get() + 1);
    let path = folder.join(&entry.name);
    let fail = |problem: &dyn std::fmt::Display| Error::file(&path, problem);
    let mut file = kolo_durable::open(&path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => fail(&"is missing; use another checkpoint"),
        _ => fail(&e),
    })?;
    let (found, needed) = (file.metadata().map_err(|e| fail(&e))?.len(), entry.bytes);
    if found != needed {
        return Err(fail(&format!(
            "has {found} bytes, but the manifest lists {needed}; use another checkpoint"
        )));
    }
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    let mut left = needed;
    while left > 0 {
        let part = &mut block[..left.min(BLOCK as u64) as usize];
        file.read_exact(part).map_err(|e| fail(&e))?;
        hash.update(&*part);
        take(part);
        left -= part.len() as u64;
    }
    let (found, needed) = (hex(&hash.finalize()), &entry.sha256);
    if found != *needed {
        return Err(fail(&format!(
            "is damaged: its SHA-256 is {found}, but the manifest lists {needed}; use another checkpoint"
        )));
    }
    Ok(())
}
