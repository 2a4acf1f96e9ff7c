//! TCP connections to other sockets than the connecting one.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// Connects to `address` within `timeout`, without delaying small messages.
///
/// # Errors
///
/// Nothing listens at `address`, or the operating system refuses.
pub fn dial(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    if is_to_itself(&stream) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    // Without this, small requests wait for acknowledgments; a failure costs only time.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Returns true if a connection leads from a socket to itself. A socket that connects to an unused port of
/// its own host may get that very port, and TCP then connects the socket to itself (RFC 9293, 3.5,
/// simultaneous open). The port would then be taken for the process that is to listen there.
fn is_to_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(here), Ok(there)) if here == there)
}

/// Returns true if this host's loopback interface does not work: then waiting does not help.
pub fn is_loopback_down(address: IpAddr, cause: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};
    address.to_canonical().is_loopback()
        && matches!(cause.kind(), NetworkUnreachable | HostUnreachable | NetworkDown)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, connect, getsockname, socket};

    use super::*;

    #[test]
    fn a_socket_that_has_connected_to_itself_is_no_connection() {
        let both = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&both, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = SocketAddrV4::try_from(getsockname(&both).unwrap()).unwrap();
        match connect(&both, &own) {
            Ok(()) => assert!(is_to_itself(&TcpStream::from(both))),
            // Not all systems connect a socket to itself.
            Err(cause) => assert_eq!(cause, rustix::io::Errno::CONNREFUSED),
        }
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = dial(listener.local_addr().unwrap(), Duration::from_secs(20)).unwrap();
        assert!(!is_to_itself(&stream));
    }

    #[test]
    fn loopback_that_is_down_differs_from_an_unreachable_network() {
        let (here, there): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [192, 0, 2, 1].into());
        let cause = |errno: rustix::io::Errno| io::Error::from(errno);
        assert!(is_loopback_down(here, &cause(rustix::io::Errno::NETUNREACH)));
        assert!(is_loopback_down("::1".parse().unwrap(), &cause(rustix::io::Errno::NETDOWN)));
        assert!(!is_loopback_down(there, &cause(rustix::io::Errno::NETUNREACH)));
        assert!(!is_loopback_down(here, &cause(rustix::io::Errno::CONNREFUSED)));
    }
}
