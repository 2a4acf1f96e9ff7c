//! Signals that make a worker save and end: SIGTERM, Ctrl-C, a terminal that closes, the limit of CPU time. A
//! member of an elastic job leaves at the end of a step; a worker of a fixed one ends after the same step as
//! all others; a single worker saves.
//!
//! A second signal ends the process at once, except under Kolo's launcher, which gets the signal as well and
//! ends its workers itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kolo_elastic::{MEMBER, STOP_ON, StopRequest, StopRequests, StopSignal, stop_signals};
use signal_hook::consts::SIGXFSZ;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use crate::error::Error;

/// Signals of the active runs in this process, those of each run. Others act as without a handler.
static HEEDED: Mutex<Vec<i32>> = Mutex::new(Vec::new());
/// True if the active runs were signaled to end.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// An active run that signals can end.
pub(crate) struct StopRequested {
    signals: Vec<i32>,
    /// True if [`StopRequested::is_new`] has found a request.
    is_known: bool,
}

impl StopRequested {
    /// Catches signals during its lifetime: the usual ones, `more`, and those of [`STOP_ON`].
    /// Fails if the variable has an unknown name.
    pub(crate) fn begin(more: &[StopSignal]) -> Result<Self, Error> {
        let told = std::env::var(STOP_ON).unwrap_or_default();
        let told = StopSignal::list(&told).map_err(|problem| Error::setting(STOP_ON, &told, problem))?;
        let signals = stop_signals(&[more, &told].concat());
        listen(&signals).map_err(Error::Signal)?;
        heeded().extend(&signals);
        Ok(StopRequested { signals, is_known: false })
    }

    pub(crate) fn get(&self) -> bool {
        REQUESTED.load(Ordering::Relaxed)
    }

    /// Returns true the first time that the run is found to be signaled.
    pub(crate) fn is_new(&mut self) -> bool {
        self.get() && !std::mem::replace(&mut self.is_known, true)
    }
}

impl Drop for StopRequested {
    fn drop(&mut self) {
        let mut heeded = heeded();
        for signal in &self.signals {
            if let Some(own) = heeded.iter().position(|other| other == signal) {
                heeded.swap_remove(own);
            }
        }
        if heeded.is_empty() {
            REQUESTED.store(false, Ordering::SeqCst);
        }
    }
}

fn heeded() -> MutexGuard<'static, Vec<i32>> {
    HEEDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Catches these signals from now on, besides those that are caught already. The first call starts the thread
/// that receives them.
fn listen(caught: &[i32]) -> std::io::Result<()> {
    static LISTENER: Mutex<Option<Handle>> = Mutex::new(None);
    let mut listener = LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(listener) = &*listener {
        return caught.iter().try_for_each(|signal| listener.add_signal(*signal));
    }
    let signals = Signals::new(caught)?;
    let handle = signals.handle();
    std::thread::Builder::new().name("kolo-signals".into()).spawn(move || receive(signals))?;
    *listener = Some(handle);
    Ok(())
}

fn receive(mut signals: Signals) {
    let mut requests = StopRequests::default();
    for signal in signals.forever() {
        let is_idle = !heeded().contains(&signal);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ALONE: &str = "signals::tests::in_a_process_of_its_own";

    #[test]
    fn every_run_has_signals_of_its_own() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", "--ignored", ALONE]).env_remove(STOP_ON).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{}: {told}", output.status);
    }

    #[test]
    #[ignore = "every_run_has_signals_of_its_own starts it: its signals would stop the runs of other tests"]
    fn in_a_process_of_its_own() {
        for signal in [StopSignal::Usr1, StopSignal::Usr2] {
            let mut run = StopRequested::begin(&[signal]).unwrap();
            assert!(!run.get() && !run.is_new());
            let number = stop_signals(&[signal]).pop().unwrap();
            signal_hook::low_level::raise(number).unwrap();
            let until = Instant::now() + Duration::from_secs(60);
            while !run.get() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(run.get() && run.is_new() && !run.is_new(), "{signal}");
        }
    }
}
