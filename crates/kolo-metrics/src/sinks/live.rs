//! Live views of a run: options of this process, not of the run. They are in no `config.toml`, and a resumed
//! run may have others.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use kolo_comm::env;
use kolo_dashboard::SCREEN;
use kolo_trace::Steps;

use kolo_recipe::Error;

/// Options for live views of a run.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LiveMetrics {
    /// Also write the metrics for TensorBoard, to tensorboard/ in the run folder
    #[arg(long)]
    pub tensorboard: bool,
    /// Serve the metrics to Prometheus at http://HOST:PORT/metrics [default HOST: 127.0.0.1]
    #[arg(long, value_name = "[HOST:]PORT")]
    pub metrics_addr: Option<MetricsAddress>,
    /// Show the running job on the terminal: loss, throughput, ranks, buckets
    #[arg(long, conflicts_with = "log_format")]
    pub dashboard: bool,
    /// Format of progress, messages and the result
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub log_format: LogFormat,
    /// Write a timeline of all ranks to this file, which must not exist. Perfetto (ui.perfetto.dev) shows
    /// it; the format is Chrome trace JSON
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// With --trace: the steps to record, counted from 0 [default: all]
    #[arg(long, value_name = "FIRST-LAST", requires = "trace")]
    pub trace_steps: Option<Steps>,
}

/// Format of a run's progress, messages and result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people: a bar or lines, and a table at the end.
    #[default]
    Text,
    /// For programs: a JSON object per line
    Json,
}

/// Environment variable that is `json` if a worker's logger must write JSON too.
pub const LOG_FORMAT: &str = "KOLO_LOG_FORMAT";

impl LiveMetrics {
    /// Returns the terminal that the launcher holds for the dashboard, if the user wants one.
    pub(super) fn screen(&self) -> Option<PathBuf> {
        std::env::var_os(SCREEN).filter(|_| self.dashboard).map(PathBuf::from)
    }
}

/// Host and port at which the metrics of a run are served.
///
/// ```
/// use kolo_metrics::MetricsAddress;
///
/// assert!("0.0.0.0:9000".parse::<MetricsAddress>().is_ok());
/// assert!("9000".parse::<MetricsAddress>().is_ok()); // on this machine alone
/// assert!("example".parse::<MetricsAddress>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsAddress(String);

const LOOPBACK: &str = "127.0.0.1";

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port = port.parse::<u16>().ok().filter(|port| *port > 0);
        let port = port.ok_or("give a port from 1 to 65535, or HOST:PORT")?;
        let is_bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        match host {
            _ if is_bare_ipv6 => Err(format!("write an address of IPv6 in brackets, as [::1]:{port}")),
            "" => Ok(MetricsAddress(format!("{LOOPBACK}:{port}"))),
            host => Ok(MetricsAddress(format!("{host}:{port}"))),
        }
    }
}

impl MetricsAddress {
    /// Checks before a job begins that its rank 0 can listen here, if it is on this host.
    ///
    /// # Errors
    ///
    /// The port is in use, the host is not this machine, or other machines can reach it and the user gave the
    /// job no token.
    pub fn check(&self) -> Result<(), Error> {
        self.listen().map(drop)
    }

    /// Begins to listen. Errors as [`MetricsAddress::check`].
    pub(super) fn listen(&self) -> Result<TcpListener, Error> {
        let addresses = self.0.to_socket_addrs();
        let addresses = addresses.map_err(|e| self.refused(format!("{e}; give another host")))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let has_token = [env::TOKEN, env::TOKEN_FILE].iter().any(|name| std::env::var_os(name).is_some());
        let open = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback());
        if let Some(address) = open.filter(|_| !has_token) {
            return Err(self.refused(format!(
                "other machines can reach {}, and without a token a job listens on loopback only; set {}, or \
                 leave the host out",
                address.ip(),
                env::TOKEN_FILE
            )));
        }
        let bound = TcpListener::bind(&*addresses);
        bound.map_err(|e| self.refused(format!("{e}; give another port or host")))
    }

    pub(super) fn refused(&self, problem: impl ToString) -> Error {
        Error::setting("--metrics-addr", &self.0, problem.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| text.parse::<MetricsAddress>().map(|address| address.0);
        for (text, expected) in [
            ("9400", "127.0.0.1:9400"),
            (":9400", "127.0.0.1:9400"),
            ("localhost:9400", "localhost:9400"),
            ("[::1]:9400", "[::1]:9400"),
        ] {
            assert_eq!(read(text), Ok(expected.into()));
        }
        for text in ["", "0", "localhost", "localhost:", "70000", "1.2.3.4:x"] {
            assert!(read(text).unwrap_err().contains("1 to 65535"), "{text}");
        }
        assert!(read("::1:9400").unwrap_err().contains("[::1]:9400"));
    }

    #[test]
    fn what_cannot_be_listened_at_is_told_with_the_option() {
        let taken = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let told = |text: String| text.parse::<MetricsAddress>().unwrap().check().unwrap_err().to_string();
        let words = told(port.to_string());
        assert!(words.contains("--metrics-addr 127.0.0.1:") && words.contains("in use"), "{words}");
        let words = told(format!("0.0.0.0:{port}"));
        assert!(
            words.contains("other machines can reach 0.0.0.0") && words.contains("KOLO_TOKEN_FILE"),
            "{words}"
        );
        drop(taken);
        port.to_string().parse::<MetricsAddress>().unwrap().check().unwrap();
    }
}
