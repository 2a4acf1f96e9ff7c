//! The optimizer's state in a file or in memory that workers share, where the job wants that.

use crate::config::Config;
use crate::sharding::Sharding;
use kolo_comm::Rank;
use kolo_host::HostStore;
use kolo_offload::{FolderStore, check_folder};
use kolo_optim::{Optimizer, Stored, StoredError, check_store};
use kolo_reduction::Error;

/// Makes an optimizer hold its state in a file, or in the memory of the host, if the job wants that and it
/// does not already. Errors: the optimizer can only hold its state itself, or the folder cannot have a file.
pub(super) fn placed(
    mut optimizer: Box<dyn Optimizer>,
    config: &Config,
) -> Result<Box<dyn Optimizer>, Error> {
    if optimizer.store().is_some() {
        return Ok(optimizer);
    }
    let refused = |error: StoredError| Error::Setting(error.to_string());
    if config.sharding == Sharding::Host {
        return Ok(Box::new(Stored::new(optimizer, HostStore::default()).map_err(refused)?));
    }
    let Some(folder) = &config.offload else { return Ok(optimizer) };
    check_offload(config)?;
    Ok(Box::new(Stored::new(optimizer, FolderStore::new(folder)).map_err(refused)?))
}

/// Checks the folder for the optimizer's state, if the job has one. A worker that may join others does so
/// before: a wrong folder then disturbs nobody.
///
/// # Errors
///
/// [`Error::Setting`]: the folder cannot have a file.
pub fn check_offload(config: &Config) -> Result<(), Error> {
    let Some(folder) = &config.offload else { return Ok(()) };
    let refused = |problem| Error::Setting(format!("{}: {problem}", folder.display()));
    check_folder(folder).map_err(refused)
}

/// Returns an error if the state is lost, or its file could not be made.
pub(super) fn check(optimizer: &mut dyn Optimizer, rank: Rank) -> Result<(), Error> {
    check_store(optimizer).map_err(|failure| Error::Offload { rank, failure })
}
