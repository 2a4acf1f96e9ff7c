//! A peer and the connections to it.

use std::net::TcpStream;

use rustix::net::sockopt::set_socket_send_buffer_size;

use super::channel::Channel;
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use kolo_rendezvous::Error;
use kolo_rendezvous::secure::keep_open;

/// Bytes that may wait in the kernel for a rank on the same host. The kernel would queue megabytes, which
/// leave the cache before they are read: a sixth more time with four ranks on two cores. A much smaller
/// buffer stalls a connection whose packets are 64 KiB long.
const SEND_BUFFER: usize = 256 * 1024;

/// One connection, with its bytes in flight.
pub(super) struct Stream {
    pub(super) channel: Channel,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
}

pub(super) struct Peer {
    pub(super) streams: Vec<Stream>,
    /// Number of connections in use: the first ones.
    pub(super) used: usize,
    /// Number of messages sent and received so far.
    pub(super) sent: usize,
    pub(super) received: usize,
    /// Unreleased received messages, then buffers for reuse. Words of 64 bits, so any element is aligned.
    pub(super) scratch: Vec<Vec<u64>>,
    pub(super) unreleased: usize,
}

impl Stream {
    fn new(channel: Channel) -> Result<Stream, Error> {
        let fail = |cause| Error::io("cannot set up a connection to a peer", cause);
        let socket = channel.stream();
        socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true)).map_err(fail)?;
        keep_open(socket);
        if is_within_host(socket) {
            // If this fails, the kernel's default stays.
            let _ = set_socket_send_buffer_size(socket, SEND_BUFFER);
        }
        Ok(Stream { channel, outgoing: Outgoing::default(), incoming: Incoming::default() })
    }
}

impl Peer {
    /// Creates the peer of these connections; `None` if there are none, as for this rank itself.
    pub(super) fn new(channels: Vec<Channel>) -> Result<Option<Peer>, Error> {
        let streams = channels.into_iter().map(Stream::new).collect::<Result<Vec<Stream>, Error>>()?;
        let used = streams.len();
        let peer = Peer { streams, used, sent: 0, received: 0, scratch: Vec::new(), unreleased: 0 };
        Ok(Some(peer).filter(|peer| !peer.streams.is_empty()))
    }

    /// Connection of the next outgoing message.
    pub(super) fn next_out(&mut self) -> &mut Stream {
        &mut self.streams[self.sent % self.used]
    }

    pub(super) fn next_in(&mut self) -> &mut Stream {
        let next = self.next_in_number();
        &mut self.streams[next]
    }

    pub(super) fn next_in_number(&self) -> usize {
        self.received % self.used
    }

    /// Uses the first `count` connections from now on, or all if there are fewer.
    pub(super) fn use_streams(&mut self, count: usize) {
        self.used = count.clamp(1, self.streams.len());
    }

    pub(super) fn is_sending(&self) -> bool {
        self.streams.iter().any(|stream| !stream.outgoing.is_empty())
    }
}

pub(super) fn is_within_host(socket: &TcpStream) -> bool {
    let ends = socket.local_addr().and_then(|here| Ok((here.ip(), socket.peer_addr()?.ip())));
    ends.is_ok_and(|(here, there)| here == there)
}
