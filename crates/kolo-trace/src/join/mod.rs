//! Joins the parts of all processes into one timeline.

mod chrome;
mod clocks;
mod collectives;
mod waits;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub use self::clocks::Clock;
use self::collectives::Collectives;
use crate::error::Error;
use crate::part::Part;
use crate::span::What;

/// Summary of a joined timeline.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Number of processes that recorded something.
    pub processes: usize,
    /// Number of spans and moments in the timeline.
    pub events: usize,
    /// Clocks of the hosts.
    pub clocks: BTreeMap<String, Clock>,
}

/// Returns the folder that holds the parts of a timeline until they are joined.
pub fn parts_folder(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".parts");
    PathBuf::from(name)
}

/// Checks before a job begins that a timeline can have this name.
///
/// # Errors
///
/// If the file or parts of another timeline exist, or if the folder cannot be written.
pub fn check_free(file: &Path) -> Result<(), Error> {
    let parts = parts_folder(file);
    for path in [file.to_owned(), parts.clone()] {
        if path.exists() {
            return Err(Error::Exists { path });
        }
    }
    fs::create_dir_all(&parts).and_then(|()| fs::remove_dir(&parts)).map_err(Error::file(&parts))
}

/// Joins the parts of a timeline into `file`, and removes them.
///
/// # Errors
///
/// If there are no parts, a part is invalid, or the file cannot be written. The parts then remain.
pub fn join(file: &Path) -> Result<Joined, Error> {
    let folder = parts_folder(file);
    let mut paths = Vec::new();
    if folder.is_dir() {
        for entry in fs::read_dir(&folder).map_err(Error::file(&folder))? {
            paths.push(entry.map_err(Error::file(&folder))?.path());
        }
    }
    paths.sort();
    let mut parts = Vec::new();
    for path in &paths {
        parts.extend(Part::read(path)?);
    }
    if parts.is_empty() {
        return Err(Error::NoParts { folder });
    }
    parts.sort_by_key(|part| (first_rank(part), part.events.first().map(|event| event.start)));
    let collectives = Collectives::of(&parts);
    let clocks = clocks::find(&parts, &collectives);
    let events = chrome::write(file, &parts, &collectives, &clocks)?;
    fs::remove_dir_all(&folder).map_err(Error::file(&folder))?;
    Ok(Joined { processes: parts.len(), events, clocks })
}

fn first_rank(part: &Part) -> usize {
    let rank = |what: &What| if let What::Rank { rank, .. } = what { Some(*rank) } else { None };
    part.events.iter().find_map(|event| rank(&event.what)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
