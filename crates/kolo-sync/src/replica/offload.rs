//! The optimizer's state in a file, where the job wants that.

use crate::config::Config;
use kolo_comm::Rank;
use kolo_offload::Offloaded;
use kolo_optim::{Optimizer, check_store};
use kolo_reduction::Error;

/// Makes an optimizer hold its state in a file, if the job wants that and it does not already.
///
/// # Errors
///
/// The optimizer can only hold its state itself.
pub(super) fn placed(
    mut optimizer: Box<dyn Optimizer>,
    config: &Config,
) -> Result<Box<dyn Optimizer>, Error> {
    match &config.offload {
        Some(folder) if optimizer.store().is_none() => {
            let offloaded = Offloaded::new(optimizer, folder);
            Ok(Box::new(offloaded.map_err(|error| Error::Setting(error.to_string()))?))
        }
        _ => Ok(optimizer),
    }
}

/// Returns an error if the state is lost, or its file could not be made.
///
/// # Errors
///
/// [`Error::Offload`].
pub(super) fn check(optimizer: &mut dyn Optimizer, rank: Rank) -> Result<(), Error> {
    check_store(optimizer).map_err(|failure| Error::Offload { rank, failure })
}
