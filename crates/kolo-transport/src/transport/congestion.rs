//! Congestion control of connections to other hosts.
//!
//! In most algorithms a rank talks to several peers in turn, so each connection is idle half of the time and
//! shares a link with another one when it begins. BBR (Cardwell et al. 2016), the default of some systems,
//! remembers for ten round trips the rate of a connection that shared its link, and sends no faster. Four
//! ranks with links of 100 Mbit/s use 68 % of these by halving-doubling, and 99 % with CUBIC
//! (docs/collectives.md).

use std::net::TcpStream;

use kolo_rendezvous::{Error, env};
use rustix::net::sockopt::set_tcp_congestion;

/// File that lists the kernel's algorithms; others need a module.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Default algorithm, if the kernel has it.
const DEFAULT: &str = "cubic";
/// Value that leaves the choice to the kernel.
const SYSTEM: &str = "system";

/// Congestion control of connections between hosts: sets how fast they may send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438), if the kernel has it.
    #[default]
    Cubic,
    /// The system's default.
    System,
    /// An algorithm of the kernel, by its name, such as `bbr`.
    Named(String),
}

impl Congestion {
    /// Parses a value of `KOLO_TCP_CONGESTION`.
    /// If the kernel has no algorithm of that name, the error lists those that it has.
    pub fn named(text: &str) -> Result<Self, Error> {
        if text == SYSTEM {
            return Ok(Congestion::System);
        }
        let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
        match available.split_whitespace().any(|name| name == text) {
            true => Ok(Congestion::Named(text.into())),
            false => {
                let known = available.split_whitespace().collect::<Vec<_>>().join(", ");
                let problem = format!("is `{text}`; this kernel has {known}, and `{SYSTEM}` leaves it alone");
                Err(Error::environment(env::TCP_CONGESTION, problem))
            }
        }
    }

    /// Sets the algorithm of a connection to another host.
    /// Fails if the system refuses the algorithm that the user has named.
    pub(crate) fn set_up(&self, socket: &TcpStream) -> Result<(), Error> {
        match self {
            Congestion::System => Ok(()),
            Congestion::Cubic => {
                // The user has not named CUBIC, so without it the kernel's default stays.
                let _ = set_tcp_congestion(socket, DEFAULT);
                Ok(())
            }
            Congestion::Named(name) => set_tcp_congestion(socket, name).map_err(|cause| {
                let problem =
                    format!("is `{name}`, which the system refuses ({cause}); an administrator can allow it");
                Error::environment(env::TCP_CONGESTION, problem)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::sockopt::tcp_congestion;

    use super::*;

    #[test]
    fn the_kernel_knows_the_names() {
        assert_eq!(Congestion::named("system").unwrap(), Congestion::System);
        // Every kernel has it.
        assert_eq!(Congestion::named("reno").unwrap(), Congestion::Named("reno".into()));
        let error = Congestion::named("quick").unwrap_err().to_string();
        assert!(
            ["KOLO_TCP_CONGESTION", "`quick`", "reno", "`system`"].iter().all(|part| error.contains(part)),
            "{error}"
        );
    }

    #[test]
    fn a_connection_is_set_up_as_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let algorithm = || tcp_congestion(&socket).unwrap();
        let before = algorithm();
        Congestion::System.set_up(&socket).unwrap();
        assert_eq!(algorithm(), before);
        Congestion::Named("reno".into()).set_up(&socket).unwrap();
        assert_eq!(algorithm(), "reno");
    }
}
