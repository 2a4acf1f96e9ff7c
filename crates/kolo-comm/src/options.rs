//! Options for forming a group, their environment variables, and the table of backends.

use std::time::Duration;

use crate::backend::FormedBackend;
use kolo_rendezvous::secure::{Token, host_timeout};
use kolo_rendezvous::{Error, Interface, env};
use kolo_schedule::{ALGORITHMS, Algorithm, Rank};
use kolo_transport::{Congestion, TransportKind};

/// Name of Kolo's own schedules over its own transports in `KOLO_BACKEND`.
const NATIVE: &str = "native";

/// Forms the job's group by a backend's own means. The first argument is this process's rank and the
/// number of ranks, if a launcher gives them.
pub type FormGroup = fn(Option<(Rank, usize)>, &Options) -> Result<FormedBackend, Error>;

/// A backend that is built into a program: an entry of the table that [`Options::from_env_with`] reads.
#[derive(Debug)]
pub struct BackendKind {
    /// Name of the backend in `KOLO_BACKEND`.
    pub name: &'static str,
    /// Forms the job's group: finds this process's rank and the other ranks by the backend's own means. The
    /// first argument is the rank and the number of ranks in a launcher's variables.
    pub form: FormGroup,
}

/// Options for forming a group.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The backend that runs the collectives instead of Kolo's own schedules over its own transports.
    pub backend: Option<&'static BackendKind>,
    /// The only transport to use. By default any two ranks take the first of
    /// [`TRANSPORTS`](crate::TRANSPORTS) that connects them: shared memory within a host, TCP between hosts.
    pub transport: Option<&'static TransportKind>,
    /// Longest time that a rank waits for others, at the rendezvous and in a collective. By default ranks
    /// have five minutes to arrive. A collective has 20 times the longest one so far, at least two
    /// minutes; less in elastic jobs ([`Pace`](crate::Pace)).
    pub timeout: Option<Duration>,
    /// Overrides the choice of algorithm, for the operations that the algorithm implements.
    pub algorithm: Option<&'static Algorithm>,
    /// True if sums that [`Options::algorithm`] cannot add take another algorithm, with a warning, instead of
    /// failing. So the later generations of an elastic job survive with fewer workers.
    pub algorithm_is_optional: bool,
    /// Name of this rank's node; ranks with the same name share memory. Detected by default.
    pub node: Option<String>,
    /// Overrides the choice of network interface, by default the one that routes to rank 0.
    pub interface: Option<Interface>,
    /// Number of TCP connections between two ranks; by default 1.
    pub streams: Option<usize>,
    /// Number of TCP connections to open between two ranks. [`Options::streams`] of them are used until a
    /// call of [`Group::use_streams`](crate::Group::use_streams); by default no more are opened.
    pub spare_streams: Option<usize>,
    /// Extra delivery time of TCP messages: simulates distance between processes of one host.
    pub delay: Duration,
    /// Congestion control of TCP connections between hosts; by default CUBIC.
    pub congestion: Congestion,
    /// Secret that admits workers to the job; without it the group stays on loopback.
    pub token: Option<Token>,
    /// Encrypts the data sent over TCP. Needs a token, and the same setting on all ranks.
    pub encrypt: bool,
    /// True if this rank is a summation server ([`Group::is_server`](crate::Group::is_server)).
    pub server: bool,
}

impl Options {
    /// Longest time that ranks may take to arrive.
    pub fn arrival(&self) -> Duration {
        self.timeout.unwrap_or(Duration::from_secs(300))
    }

    /// Parses a value of `KOLO_TIMEOUT`.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`]: the text is not a number of seconds greater than 0 and below 1e9.
    pub fn read_timeout(text: &str) -> Result<Duration, Error> {
        let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s < 1e9);
        let problem = || format!("is `{text}`; it must be a number of seconds greater than 0 and below 1e9");
        let seconds = seconds.ok_or_else(|| Error::environment(env::TIMEOUT, problem()))?;
        Ok(Duration::from_secs_f64(seconds))
    }

    /// Reads the variables of [`kolo_rendezvous::env`], from `KOLO_TRANSPORT` to `KOLO_SERVER`.
    /// `KOLO_BACKEND` may name only the native backend.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable with an invalid value.
    pub fn from_env() -> Result<Options, Error> {
        Options::from_env_with(&[])
    }

    /// Reads the variables as [`Options::from_env`] does, in a program that also has the given backends.
    /// Fails as [`Options::from_env`] does.
    pub fn from_env_with(backends: &[&'static BackendKind]) -> Result<Options, Error> {
        let mut options = Options::default();
        if let Some(text) = std::env::var(env::BACKEND).ok().filter(|text| text != NATIVE) {
            let found = backends.iter().find(|kind| kind.name == text);
            let known = [NATIVE].into_iter().chain(backends.iter().map(|kind| kind.name));
            let known = known.collect::<Vec<_>>().join(", ");
            let problem = format!("is `{text}`; this program knows {known}");
            options.backend = Some(found.ok_or_else(|| Error::environment(env::BACKEND, problem))?);
        }
        if let Ok(text) = std::env::var(env::TRANSPORT) {
            let found = TransportKind::named(&text);
            let problem = || format!("is `{text}`; known are {}", TransportKind::names().join(", "));
            options.transport = Some(found.ok_or_else(|| Error::environment(env::TRANSPORT, problem()))?);
        }
        if let Ok(text) = std::env::var(env::TIMEOUT) {
            options.timeout = Some(Options::read_timeout(&text)?);
        }
        if let Ok(text) = std::env::var(env::ALGORITHM) {
            let known: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
            let problem = format!("is `{text}`; known are {}", known.join(", "));
            let found = ALGORITHMS.iter().find(|algorithm| algorithm.name == text);
            options.algorithm = Some(found.ok_or_else(|| Error::environment(env::ALGORITHM, problem))?);
        }
        options.node = std::env::var(env::NODE).ok();
        if let Ok(text) = std::env::var(env::IFACE) {
            options.interface = Some(Interface::named(&text)?);
        }
        if let Ok(text) = std::env::var(env::STREAMS) {
            let streams = text.parse::<usize>().ok().filter(|streams| (1..=64).contains(streams));
            let problem = format!("is `{text}`; it must be a whole number from 1 to 64");
            options.streams = Some(streams.ok_or_else(|| Error::environment(env::STREAMS, problem))?);
        }
        if let Ok(text) = std::env::var(env::TCP_DELAY_US) {
            let microseconds = text.parse::<u64>().ok().filter(|us| *us <= 1_000_000);
            let problem =
                format!("is `{text}`; it must be a whole number of microseconds, at most a million");
            let microseconds = microseconds.ok_or_else(|| Error::environment(env::TCP_DELAY_US, problem))?;
            options.delay = Duration::from_micros(microseconds);
        }
        if let Ok(text) = std::env::var(env::TCP_CONGESTION) {
            options.congestion = Congestion::named(&text)?;
        }
        // Connecting reads the host timeout again; an invalid value is reported here.
        host_timeout()?;
        options.token = Token::from_env()?;
        options.encrypt = flag(env::ENCRYPT)?;
        options.server = flag(env::SERVER)?;
        Ok(options)
    }
}

/// Reads a variable that is 0 or 1; 0 if it is not set.
fn flag(name: &str) -> Result<bool, Error> {
    match std::env::var(name).as_deref() {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(text) => Err(Error::environment(name, format!("is `{text}`; it must be 0 or 1"))),
    }
}
