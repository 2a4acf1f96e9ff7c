//! SIGTERM asks a worker to leave: it does so at the end of a step.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGTERM;

use crate::fail::Failure;

/// What SIGTERM sets. A second one ends the process at once.
pub(super) fn leaving() -> Result<Arc<AtomicBool>, Failure> {
    let leaving = Arc::new(AtomicBool::new(false));
    let fail = |e: std::io::Error| Failure::work(format!("cannot catch SIGTERM: {e}"));
    signal_hook::flag::register_conditional_default(SIGTERM, leaving.clone()).map_err(fail)?;
    signal_hook::flag::register(SIGTERM, leaving.clone()).map_err(fail)?;
    Ok(leaving)
}
