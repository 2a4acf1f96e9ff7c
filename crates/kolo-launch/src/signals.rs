//! Signals that ask the launcher to end or to stop (Ctrl-Z), caught while a job runs so that its workers do
//! so first.
//!
//! Workers have their own process groups, and a terminal sends Ctrl-C and Ctrl-Z to the launcher's group
//! only. Without forwarding, the workers would not receive them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use kolo_elastic::{StopSignal, stop_signals};
use parking_lot::Mutex;
use signal_hook::consts::signal::SIGTSTP;
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::error::LaunchError;

/// Signal state of the process, for all jobs that it runs, concurrently or in turn.
struct Process {
    /// True if no job runs: then signals have their default effect.
    idle: Arc<AtomicBool>,
    jobs: Mutex<Jobs>,
}

#[derive(Default)]
struct Jobs {
    running: usize,
    /// Signals that have been caught so far. signal-hook does not release them.
    caught: Vec<i32>,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// Catches signals as long as it lives.
pub struct Signals {
    /// Dropped first, so that a signal that arrives meanwhile is not lost.
    _job: Running,
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

struct Running(&'static Process);

impl Signals {
    /// Catches `more` and the stop signals that were not ignored from the start, as SIGHUP is under `nohup`.
    ///
    /// # Errors
    ///
    /// The operating system refuses it.
    pub fn catch(more: &[StopSignal]) -> Result<Signals, LaunchError> {
        Self::caught(more).map_err(|cause| LaunchError::system("cannot catch signals", cause))
    }

    fn caught(more: &[StopSignal]) -> io::Result<Signals> {
        let process =
            PROCESS.get_or_init(|| Process { idle: Arc::new(AtomicBool::new(true)), jobs: Mutex::default() });
        let mut caught = stop_signals(more);
        caught.push(SIGTSTP);
        let job = Running::begin(process, &caught)?;
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, &caught)?;
        Ok(Signals { _job: job, delivery })
    }

    /// Returns a descriptor that becomes readable when a signal has arrived.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// Returns the signals that have arrived since the last call.
    pub(crate) fn pending(&mut self) -> impl Iterator<Item = i32> {
        self.delivery.pending()
    }
}

impl Running {
    fn begin(process: &'static Process, caught: &[i32]) -> io::Result<Running> {
        let mut jobs = process.jobs.lock();
        for signal in caught {
            if !jobs.caught.contains(signal) {
                // Once a signal is caught, only this makes it end an idle process.
                register_conditional_default(*signal, Arc::clone(&process.idle))?;
                jobs.caught.push(*signal);
            }
        }
        jobs.running += 1;
        process.idle.store(false, Ordering::SeqCst);
        Ok(Running(process))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut jobs = self.0.jobs.lock();
        jobs.running -= 1;
        self.0.idle.store(jobs.running == 0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_at_once_and_in_a_row() {
        let (one, two) = (Signals::catch(&[]).unwrap(), Signals::catch(&[]).unwrap());
        drop(one);
        drop(two);
        let mut three = Signals::catch(&[]).unwrap();
        assert_eq!(three.pending().count(), 0);
    }
}
