//! The optimizer's state in a file or in memory that workers share, where the job wants that.

use crate::config::Config;
use crate::sharding::Sharding;
use kolo_comm::Rank;
use kolo_host::Hosted;
use kolo_offload::{Offloaded, check_folder};
use kolo_optim::{Optimizer, check_store};
use kolo_reduction::Error;

/// Makes an optimizer hold its state in a file, or in the memory of the host, if the job wants that and it
/// does not already.
///
/// # Errors
///
/// The optimizer can only hold its state itself, or the folder cannot have a file.
pub(super) fn placed(
    mut optimizer: Box<dyn Optimizer>,
    config: &Config,
) -> Result<Box<dyn Optimizer>, Error> {
    if config.sharding == Sharding::Host && optimizer.store().is_none() {
        let hosted = Hosted::new(optimizer);
        return Ok(Box::new(hosted.map_err(|error| Error::Setting(error.to_string()))?));
    }
    match &config.offload {
        Some(folder) if optimizer.store().is_none() => {
            check_offload(config)?;
            let offloaded = Offloaded::new(optimizer, folder);
            Ok(Box::new(offloaded.map_err(|error| Error::Setting(error.to_string()))?))
        }
        _ => Ok(optimizer),
    }
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
///
/// # Errors
///
/// [`Error::Offload`].
pub(super) fn check(optimizer: &mut dyn Optimizer, rank: Rank) -> Result<(), Error> {
    check_store(optimizer).map_err(|failure| Error::Offload { rank, failure })
}
