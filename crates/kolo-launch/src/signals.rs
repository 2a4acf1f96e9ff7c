//! Signals that ask the launcher to end: caught while a job runs, so that its workers end first.
//!
//! Workers are in process groups of their own, and a terminal sends Ctrl-C to the launcher's group only:
//! without this the workers would not hear of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// The signals of the whole process, however many jobs it runs, at once or one after another.
struct Process {
    /// Whether no job runs: then signals do what they would do without a handler.
    idle: Arc<AtomicBool>,
    jobs: Mutex<usize>,
    /// The signals that were not ignored from the start, as SIGHUP is under `nohup`.
    caught: Vec<i32>,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// Catches signals as long as it lives.
pub(crate) struct Signals {
    /// Dropped first: a signal that comes meanwhile must not get lost.
    _job: Running,
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

struct Running(&'static Process);

impl Signals {
    pub fn catch() -> io::Result<Signals> {
        let process = PROCESS.get_or_init(|| {
            let ignored = ignored_signals();
            let heeded = |signal: &i32| ignored & (1 << (signal - 1)) == 0;
            Process {
                idle: Arc::new(AtomicBool::new(true)),
                jobs: Mutex::new(0),
                caught: [SIGHUP, SIGINT, SIGTERM].into_iter().filter(heeded).collect(),
            }
        });
        let job = Running::begin(process)?;
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, &process.caught)?;
        Ok(Signals { _job: job, delivery })
    }

    /// Becomes readable when a signal has come.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// The signals that have come since the last call.
    pub fn pending(&mut self) -> impl Iterator<Item = i32> {
        self.delivery.pending()
    }
}

impl Running {
    fn begin(process: &'static Process) -> io::Result<Running> {
        static FALLBACK: OnceLock<()> = OnceLock::new();
        let mut jobs = process.jobs.lock();
        // signal-hook does not give a signal back: once caught, only this makes it end an idle process.
        if FALLBACK.get().is_none() {
            for signal in &process.caught {
                register_conditional_default(*signal, Arc::clone(&process.idle))?;
            }
            let _ = FALLBACK.set(());
        }
        *jobs += 1;
        process.idle.store(false, Ordering::SeqCst);
        Ok(Running(process))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut jobs = self.0.jobs.lock();
        *jobs -= 1;
        self.0.idle.store(*jobs == 0, Ordering::SeqCst);
    }
}

/// The signals this process ignores, one bit each from the lowest (signal 1) up; none where `/proc` is
/// missing.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_known() {
        // Rust's start-up ignores SIGPIPE, and leaves the others.
        assert_ne!(ignored_signals() & (1 << (signal_hook::consts::SIGPIPE - 1)), 0);
        assert_eq!(ignored_signals() & (1 << (signal_hook::consts::SIGSEGV - 1)), 0);
    }

    #[test]
    fn jobs_at_once_and_in_a_row() {
        let (one, two) = (Signals::catch().unwrap(), Signals::catch().unwrap());
        drop(one);
        drop(two);
        let mut three = Signals::catch().unwrap();
        assert_eq!(three.pending().count(), 0);
    }
}
