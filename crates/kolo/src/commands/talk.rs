//! How workers talk: options of every command that starts some, passed on by environment.

use std::ffi::OsString;

use clap::Args;
use kolo_comm::env;

/// How workers talk.
#[derive(Args)]
pub(crate) struct Talk {
    /// Shared memory or TCP, also on one machine [default: shared memory between workers of one machine]
    #[arg(long, value_parser = ["shm", "tcp"])]
    transport: Option<String>,
    /// Seconds that a worker waits for others [default: 300 to arrive, then 20 times the longest collective so far, at least 120]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<f64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e9);
    seconds.ok_or_else(|| "give a number of seconds greater than 0".into())
}

impl Talk {
    /// The variables that tell workers, besides those of `algorithm`.
    pub(crate) fn environment(&self, algorithm: Option<&String>) -> Vec<(String, OsString)> {
        let timeout = self.timeout.map(|seconds| seconds.to_string());
        [
            (env::TRANSPORT, self.transport.clone()),
            (env::TIMEOUT, timeout),
            (env::ALGORITHM, algorithm.cloned()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_string(), value?.into())))
        .collect()
    }
}

/// The names that `--algorithm` knows.
pub(crate) fn algorithms() -> Vec<&'static str> {
    kolo_comm::schedule::ALGORITHMS.iter().map(|algorithm| algorithm.name).collect()
}
