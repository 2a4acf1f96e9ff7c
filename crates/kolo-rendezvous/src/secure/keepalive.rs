//! Keepalive of the store's connections. A host that loses power or its cable says nothing, so its
//! connections stay open until the kernel probes them.

use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

/// How long a connection may be idle before the kernel probes the other host, the time between two probes,
/// and after how many without an answer the connection is broken.
const IDLE: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_secs(1);
const PROBES: u32 = 5;

/// For how long what has been sent may stay without an acknowledgement.
const USER_TIMEOUT: Duration = Duration::from_secs(8);

/// Lets a connection to the store break within ten seconds when the other host has vanished. The kernels
/// probe and answer, so processes may be as busy as they like, or stopped.
///
/// Not for data: what waits there until a busy rank takes it has no acknowledgement either.
pub(super) fn enable(stream: &TcpStream) {
    let set = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, IDLE))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, INTERVAL))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, PROBES))
        .and_then(|()| sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT.as_millis() as u32));
    if let Err(cause) = set {
        log::warn!("a host that vanishes will be noticed by deadlines only: {cause}");
    }
}
