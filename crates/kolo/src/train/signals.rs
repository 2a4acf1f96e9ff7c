//! SIGTERM asks a member of an elastic job to leave: it does so at the end of a step. It may come twice, from a job manager and
//! from the launcher to which that has sent it as well; who does not want to wait sends SIGKILL.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGTERM;

use crate::fail::Failure;

/// What SIGTERM sets from now on.
pub(super) fn leaving() -> Result<Arc<AtomicBool>, Failure> {
    let leaving = Arc::new(AtomicBool::new(false));
    let fail = |e: std::io::Error| Failure::work(format!("cannot catch SIGTERM: {e}"));
    signal_hook::flag::register(SIGTERM, leaving.clone()).map_err(fail)?;
    Ok(leaving)
}
