//! SIGTERM asks a member of an elastic job to leave: it does so at the end of a step. It may come twice, from
//! a job manager and from the launcher to which that has sent it as well; who does not want to wait sends
//! SIGKILL.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGTERM;

use crate::error::Error;

/// What SIGTERM sets from now on.
pub(crate) fn leaving() -> Result<Arc<AtomicBool>, Error> {
    let leaving = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, leaving.clone()).map_err(Error::Signal)?;
    Ok(leaving)
}
