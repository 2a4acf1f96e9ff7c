//! Keepalive of connections. A host that loses power or its cable sends nothing, so its connections stay
//! open until the kernel probes them.

use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io;
use rustix::net::sockopt;

use crate::env::HOST_TIMEOUT;
use crate::error::Error;

/// Default time for which a host may be unreachable.
const DEFAULT: Duration = Duration::from_secs(8);
/// Seconds that the kernel accepts, which counts in whole seconds.
const BOUNDS: std::ops::RangeInclusive<u64> = 2..=32_767;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probing {
    /// Idle time of a connection before the first probe.
    idle: Duration,
    interval: Duration,
    /// Number of unanswered probes after which the connection is broken.
    probes: u32,
}

/// Probes of data connections, which may be idle while ranks compute. The store's connections detect sooner
/// that a host has vanished. These probes keep routers from forgetting an idle connection, and detect a
/// connection that a router forgot.
const DATA: Probing = Probing { idle: Duration::from_secs(30), interval: Duration::from_secs(10), probes: 6 };

impl Probing {
    /// Returns probes that break a connection to a host that has been unreachable for this time.
    fn within(silence: Duration) -> Probing {
        let seconds = silence.as_secs();
        let idle = (seconds * 3 / 8).max(1);
        let interval = (seconds - idle).div_ceil(5).max(1);
        let probes = (seconds - idle).div_ceil(interval).max(1) as u32;
        Probing { idle: Duration::from_secs(idle), interval: Duration::from_secs(interval), probes }
    }

    fn set(self, stream: &TcpStream) -> io::Result<()> {
        sockopt::set_socket_keepalive(stream, true)
            .and_then(|()| sockopt::set_tcp_keepidle(stream, self.idle))
            .and_then(|()| sockopt::set_tcp_keepintvl(stream, self.interval))
            .and_then(|()| sockopt::set_tcp_keepcnt(stream, self.probes))
    }
}

/// Returns the time for which a host may be unreachable, from `KOLO_HOST_TIMEOUT`.
///
/// # Errors
///
/// [`Error::Environment`]: the variable is not a whole number of seconds, or out of bounds.
pub fn host_timeout() -> Result<Duration, Error> {
    std::env::var(HOST_TIMEOUT).ok().filter(|text| !text.is_empty()).map_or(Ok(DEFAULT), |text| read(&text))
}

fn read(text: &str) -> Result<Duration, Error> {
    let (least, most) = BOUNDS.into_inner();
    let problem = || format!("is `{text}`; it must be a whole number of seconds from {least} to {most}");
    let seconds = text.parse::<u64>().ok().filter(|seconds| BOUNDS.contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| Error::environment(HOST_TIMEOUT, problem()))
}

/// Breaks a connection to the store when the other host has been unreachable for [`host_timeout`]. The
/// kernels send and answer the probes, so processes may be busy or stopped.
///
/// It does not suit data connections: data that waits for a busy rank is not acknowledged either.
pub(super) fn enable(stream: &TcpStream) {
    static TIMEOUT: OnceLock<Duration> = OnceLock::new();
    // Reading the options reports an invalid value of the variable.
    let timeout = *TIMEOUT.get_or_init(|| host_timeout().unwrap_or(DEFAULT));
    let user_timeout = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    let set = Probing::within(timeout)
        .set(stream)
        .and_then(|()| sockopt::set_tcp_user_timeout(stream, user_timeout));
    if let Err(cause) = set {
        log::warn!("only deadlines will show that a host has vanished: {cause}");
    }
}

/// Keeps an idle data connection open, and breaks it when the other host is gone.
pub fn keep_open(stream: &TcpStream) {
    if let Err(cause) = DATA.set(stream) {
        log::debug!("a data connection is not probed while it is idle: {cause}");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn probes_take_as_long_as_a_host_may_be_silent() {
        let of = |seconds| {
            let Probing { idle, interval, probes } = Probing::within(Duration::from_secs(seconds));
            (idle.as_secs(), interval.as_secs(), probes)
        };
        assert_eq!([of(2), of(8), of(60)], [(1, 1, 1), (3, 1, 5), (22, 8, 5)]);
        for seconds in [2, 3, 8, 15, 60, 100, 1000, 32_767] {
            let (idle, interval, probes) = of(seconds);
            let all = idle + interval * u64::from(probes);
            assert!((seconds..=seconds + interval).contains(&all) && probes <= 5, "{seconds}: {all}");
        }
    }

    #[test]
    fn a_time_that_the_kernel_does_not_take_is_refused() {
        assert_eq!(read("30").unwrap(), Duration::from_secs(30));
        for wrong in ["", "1", "-3", "2.5", "40000", "a minute"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("KOLO_HOST_TIMEOUT") && error.contains("from 2 to 32767"), "{error}");
        }
    }

    #[test]
    fn data_connections_are_probed_while_they_are_idle() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
        keep_open(&stream);
        assert!(sockopt::socket_keepalive(&stream).unwrap());
    }
}
