//! Signals that ask a job, or one of its workers, to save its state and end. Launchers and workers handle
//! the same signals and count repeated requests in the same way.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::process::Signal;

/// Environment variable that lists a worker's additional [`StopSignal`]s.
pub const STOP_ON: &str = "KOLO_STOP_ON";

/// Ctrl-C, a terminal or ssh that closes, a job manager, and the CPU time limit (`ulimit -t`; its hard limit
/// kills).
const USUAL: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::TERM, Signal::XCPU];

/// Time after the first signal during which further signals belong to the same request. One request may
/// arrive several times and as several signals: from a terminal and a launcher, or from a job manager that
/// signals the whole job and then each process, with SIGTERM and then SIGHUP.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// A signal that ends a process by default, and that a job may treat as a request to save and end. Job
/// managers send it some time before a limit (Slurm: `--signal=USR1@120`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGUSR1
    Usr1,
    /// SIGUSR2
    Usr2,
}

impl StopSignal {
    /// Parses a list such as `usr1,usr2`.
    ///
    /// # Errors
    ///
    /// The text contains another word; the error names it and the valid ones.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').filter(|word| !word.is_empty()).map(str::parse).collect()
    }

    fn signal(self) -> Signal {
        match self {
            StopSignal::Usr1 => Signal::USR1,
            StopSignal::Usr2 => Signal::USR2,
        }
    }
}

impl FromStr for StopSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.to_ascii_lowercase();
        match name.strip_prefix("sig").unwrap_or(&name) {
            "usr1" => Ok(StopSignal::Usr1),
            "usr2" => Ok(StopSignal::Usr2),
            _ => Err(format!(
                "`{text}`: give usr1, usr2 or usr1,usr2; int, term, hup and xcpu are heard in any case"
            )),
        }
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StopSignal::Usr1 => "usr1",
            StopSignal::Usr2 => "usr2",
        })
    }
}

/// Returns the numbers of the signals that ask this process to end, including `more`. Signals that the
/// process was started to ignore are left out, such as SIGHUP under `nohup`.
pub fn stop_signals(more: &[StopSignal]) -> Vec<i32> {
    let ignored = ignored_signals();
    let all = USUAL.into_iter().chain(more.iter().map(|signal| signal.signal()));
    all.map(Signal::as_raw).filter(|signal| ignored & (1 << (signal - 1)) == 0).collect()
}

/// Returns the signals that this process ignores, one bit each from signal 1 up; 0 without `/proc`.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Counter of the requests to end that a process has received.
#[derive(Debug, Default)]
pub struct StopRequests {
    first: Option<Instant>,
}

/// The meaning of a received signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// The first request: save, and end.
    First,
    /// A repetition of the first request.
    Again,
    /// A second request: the user does not want to wait.
    Second,
}

impl StopRequests {
    /// Counts a received signal.
    pub fn count(&mut self, signal: i32, now: Instant) -> StopRequest {
        let Some(first) = self.first else {
            self.first = Some(now);
            return StopRequest::First;
        };
        // The kernel sends SIGXCPU again with every second of CPU time.
        match signal == Signal::XCPU.as_raw() || now.saturating_duration_since(first) < SAME_REQUEST {
            true => StopRequest::Again,
            false => StopRequest::Second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_may_come_more_than_once() {
        use StopRequest::{Again, First, Second};
        let (term, int, xcpu) = (Signal::TERM.as_raw(), Signal::INT.as_raw(), Signal::XCPU.as_raw());
        for events in [
            &[(int, 0, First), (int, 0, Again), (int, 999, Again), (int, 1000, Second), (int, 1001, Second)]
                [..],
            &[(term, 5, First), (int, 700, Again), (term, 2000, Second)],
            &[(xcpu, 0, First), (xcpu, 1500, Again), (xcpu, 9000, Again), (int, 9001, Second)],
        ] {
            let (mut requests, begin) = (StopRequests::default(), Instant::now());
            for (signal, ms, is) in events {
                let now = begin + Duration::from_millis(*ms);
                assert_eq!(requests.count(*signal, now), *is, "{signal} at {ms} ms of {events:?}");
            }
        }
    }

    #[test]
    fn ignored_signals_are_found() {
        // Rust's start-up ignores SIGPIPE, and leaves the others.
        assert_ne!(ignored_signals() & (1 << (Signal::PIPE.as_raw() - 1)), 0);
        assert_eq!(ignored_signals() & (1 << (Signal::SEGV.as_raw() - 1)), 0);
    }

    #[test]
    fn names_are_read() {
        assert_eq!(StopSignal::list("usr1,SIGUSR2"), Ok(vec![StopSignal::Usr1, StopSignal::Usr2]));
        assert_eq!(StopSignal::list(""), Ok(Vec::new()));
        assert!(StopSignal::list("usr1,kill").unwrap_err().contains("`kill`: give usr1, usr2 or"));
        assert_eq!(StopSignal::Usr2.to_string().parse(), Ok(StopSignal::Usr2));
    }
}
