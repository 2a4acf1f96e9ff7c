//! Congestion control of connections to other hosts.
//!
//! In most algorithms a rank talks to several peers in turn, so each connection is idle half of the time and
//! shares a link with another one when it begins. BBR (Cardwell et al. 2016), which some systems have as
//! their default, remembers for ten round trips what a connection got while it shared, and sends no faster:
//! four ranks with links of 100 Mbit/s use 68 % of these by halving-doubling, and 99 % with CUBIC
//! (docs/collectives.md).

use std::net::TcpStream;

use kolo_rendezvous::{Error, env};
use rustix::net::sockopt::set_tcp_congestion;

use super::peer::is_within_host;

/// What the kernel can do; others need a module.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Used where nothing else is said, if the kernel has it.
const DEFAULT: &str = "cubic";
/// Leaves the choice to the kernel.
const SYSTEM: &str = "system";

/// How connections between hosts find out how fast they may send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438), where the kernel has it.
    #[default]
    Cubic,
    /// As the system does it by itself.
    System,
    /// By an algorithm of the kernel's, such as `bbr`.
    Named(String),
}

impl Congestion {
    /// What `KOLO_TCP_CONGESTION` says.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`], if the kernel has none of that name; it lists those that it has.
    pub(crate) fn named(text: &str) -> Result<Self, Error> {
        match text {
            SYSTEM => return Ok(Congestion::System),
            DEFAULT => return Ok(Congestion::Cubic),
            _ => {}
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

    /// Sets up a connection, unless it stays within a host.
    ///
    /// # Errors
    ///
    /// The system refuses the algorithm that the user has named.
    pub(super) fn set_up(&self, socket: &TcpStream) -> Result<(), Error> {
        if is_within_host(socket) {
            return Ok(());
        }
        match self {
            Congestion::System => Ok(()),
            Congestion::Cubic => {
                // Without it the kernel's own choice stands.
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

    use super::*;

    #[test]
    fn the_kernel_knows_the_names() {
        assert_eq!(Congestion::named("system").unwrap(), Congestion::System);
        assert_eq!(Congestion::named("cubic").unwrap(), Congestion::default());
        // Every kernel has it.
        assert_eq!(Congestion::named("reno").unwrap(), Congestion::Named("reno".into()));
        let error = Congestion::named("quick").unwrap_err().to_string();
        assert!(
            ["KOLO_TCP_CONGESTION", "`quick`", "reno", "`system`"].iter().all(|part| error.contains(part)),
            "{error}"
        );
    }

    #[test]
    fn connections_between_hosts_are_set_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let algorithm = |socket: &TcpStream| rustix::net::sockopt::tcp_congestion(socket).unwrap();
        let before = algorithm(&own);
        Congestion::Named("reno".into()).set_up(&own).unwrap();
        assert_eq!(algorithm(&own), before, "within a host");

        // Another address of this host counts as another host.
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = TcpStream::connect(address).unwrap();
        assert_ne!(socket.local_addr().unwrap().ip(), address.ip());
        Congestion::Named("reno".into()).set_up(&socket).unwrap();
        assert_eq!(algorithm(&socket), "reno");
        drop(accepted);
    }
}
