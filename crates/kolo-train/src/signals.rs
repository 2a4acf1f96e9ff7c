//! Signals that make a worker save and end: SIGTERM, Ctrl-C, a terminal that closes, the limit of CPU time. A
//! member of an elastic job leaves at the end of a step; a worker of a fixed one ends after the same step as
//! all others; a single worker saves.
//!
//! A second signal ends the process at once, except under Kolo's launcher, which gets the signal as well and
//! ends its workers itself.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use kolo_elastic::{MEMBER, STOP_ON, StopRequest, StopRequests, StopSignal, stop_signals};
use signal_hook::consts::SIGXFSZ;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::error::Error;

/// Number of active runs in this process. Without one, signals act as without a handler.
static RUNS: AtomicUsize = AtomicUsize::new(0);
/// True if the active runs were signaled to end.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// An active run that signals can end.
pub(crate) struct StopRequested(());

impl StopRequested {
    /// Catches signals during its lifetime: the usual ones, `more`, and those of [`STOP_ON`].
    ///
    /// # Errors
    ///
    /// Signals cannot be caught, or the variable has an unknown name.
    pub(crate) fn begin(more: &[StopSignal]) -> Result<Self, Error> {
        static LISTENS: OnceLock<Result<(), String>> = OnceLock::new();
        let told = std::env::var(STOP_ON).unwrap_or_default();
        let told = StopSignal::list(&told).map_err(|problem| Error::setting(STOP_ON, &told, problem))?;
        let listens = || listen(&stop_signals(&[more, &told].concat())).map_err(|error| error.to_string());
        LISTENS.get_or_init(listens).clone().map_err(|error| Error::Signal(std::io::Error::other(error)))?;
        RUNS.fetch_add(1, Ordering::SeqCst);
        Ok(StopRequested(()))
    }

    pub(crate) fn get(&self) -> bool {
        REQUESTED.load(Ordering::Relaxed)
    }
}

impl Drop for StopRequested {
    fn drop(&mut self) {
        if RUNS.fetch_sub(1, Ordering::SeqCst) == 1 {
            REQUESTED.store(false, Ordering::SeqCst);
        }
    }
}

/// Starts the thread that receives signals.
fn listen(caught: &[i32]) -> std::io::Result<()> {
    let mut signals = Signals::new(caught)?;
    let hear = move || {
        let mut requests = StopRequests::default();
        for signal in signals.forever() {
            let is_idle = RUNS.load(Ordering::SeqCst) == 0;
            if is_idle || !REQUESTED.load(Ordering::SeqCst) {
                requests = StopRequests::default();
            }
            let request = requests.count(signal, Instant::now());
            let ends_now = request == StopRequest::Second && std::env::var_os(MEMBER).is_none();
            if is_idle || ends_now {
                // Does what the handler prevented: ends the process by the signal.
                let _ = emulate_default_handler(signal);
            }
            REQUESTED.store(true, Ordering::SeqCst);
        }
    };
    std::thread::Builder::new().name("kolo-signals".into()).spawn(hear).map(drop)
}

/// Makes a write beyond `ulimit -f` fail like one to a full disk. SIGXFSZ would end the process at once,
/// without a message or a checkpoint. This installs a handler, which child programs do not inherit.
///
/// # Errors
///
/// The system does not accept the handler.
pub fn survive_large_files() -> Result<(), Error> {
    static IS_HANDLED: AtomicBool = AtomicBool::new(false);
    if IS_HANDLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // The handler does nothing: the failed write returns an error.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop).map_err(Error::Signal)
}
