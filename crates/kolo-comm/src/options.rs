//! How a group is formed, and what the environment says about it.

use std::time::Duration;

use crate::backend::BackendChoice;
use crate::env;
use crate::error::Error;
use crate::interface::Interface;
use crate::membership::TransportChoice;
use crate::schedule::{ALGORITHMS, Algorithm};

/// How a group is formed.
#[derive(Clone, Debug)]
pub struct Options {
    /// What does the work of the collectives.
    pub backend: BackendChoice,
    /// Overrides the choice of transport: shared memory where all ranks are on one host, else TCP.
    pub transport: Option<TransportChoice>,
    /// How long a rank waits for others, at the rendezvous and in a collective.
    pub timeout: Duration,
    /// Overrides the choice of algorithm, for the operations that it does.
    pub algorithm: Option<&'static Algorithm>,
    /// Name of this rank's node: ranks of one name share memory. By default found out.
    pub node: Option<String>,
    /// Overrides the choice of network interface: the one that routes to rank 0.
    pub interface: Option<Interface>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            backend: BackendChoice::Native,
            transport: None,
            timeout: Duration::from_secs(300),
            algorithm: None,
            node: None,
            interface: None,
        }
    }
}

impl Options {
    /// Reads `KOLO_BACKEND`, `KOLO_TRANSPORT`, `KOLO_TIMEOUT`, `KOLO_ALGORITHM`, `KOLO_NODE` and `KOLO_IFACE`.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable that cannot be understood.
    pub fn from_env() -> Result<Options, Error> {
        let mut options = Options::default();
        if let Ok(text) = std::env::var(env::BACKEND) {
            options.backend =
                text.parse().map_err(|problem: String| Error::environment(env::BACKEND, problem))?;
        }
        if let Ok(text) = std::env::var(env::TRANSPORT) {
            let choice =
                text.parse().map_err(|problem: String| Error::environment(env::TRANSPORT, problem))?;
            options.transport = Some(choice);
        }
        if let Ok(text) = std::env::var(env::TIMEOUT) {
            let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s < 1e9);
            let problem = format!("is `{text}`; it must be a number of seconds greater than 0");
            let seconds = seconds.ok_or_else(|| Error::environment(env::TIMEOUT, problem))?;
            options.timeout = Duration::from_secs_f64(seconds);
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
        Ok(options)
    }
}
