//! A host that loses power or its cable says nothing: its connections stay open until somebody asks.

use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

/// How long a connection may be silent before the kernel asks the other host, how long it waits for each
/// answer, and how often it asks.
const SILENCE: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(1);
const QUESTIONS: u32 = 5;

/// For how long what has been sent may stay without an acknowledgement.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(8);

/// Lets a connection to the store break within ten seconds when the other host has vanished. The kernels ask
/// and answer, so processes may be as busy as they like, or stopped.
///
/// Not for data: what waits there until a busy rank takes it has no acknowledgement either.
pub(super) fn watch(stream: &TcpStream) {
    let acknowledgement = ACKNOWLEDGEMENT.as_millis() as u32;
    let set = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, SILENCE))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, ANSWER))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, QUESTIONS))
        .and_then(|()| sockopt::set_tcp_user_timeout(stream, acknowledgement));
    if let Err(cause) = set {
        log::warn!("a host that vanishes will be noticed by deadlines only: {cause}");
    }
}
