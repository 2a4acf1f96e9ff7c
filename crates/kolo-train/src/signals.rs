//! SIGTERM asks a member of an elastic job to leave: it does so at the end of a step. It may come twice, from
//! a job manager and from the launcher to which that has sent it as well; who does not want to wait sends
//! SIGKILL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGTERM, SIGXFSZ};

use crate::error::Error;

/// What SIGTERM sets from now on.
pub(crate) fn leaving() -> Result<Arc<AtomicBool>, Error> {
    let leaving = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, leaving.clone()).map_err(Error::Signal)?;
    Ok(leaving)
}

/// Lets a file that becomes larger than `ulimit -f` fail as one on a full disk does. SIGXFSZ would end the
/// process at once, without a word and without a checkpoint. By a handler, which programs that are started
/// from here do not inherit.
///
/// # Errors
///
/// The system takes no handler.
pub fn survive_large_files() -> Result<(), Error> {
    static IS_HANDLED: AtomicBool = AtomicBool::new(false);
    if IS_HANDLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // Nobody has to know: what was written says that it could not be.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop).map_err(Error::Signal)
}
