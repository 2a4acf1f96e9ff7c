//! The transport of ranks on different hosts.

mod channel;
mod connections;
mod data_listener;
mod header;
mod incoming;
mod outgoing;
mod peer;

use std::net::SocketAddr;

use kolo_rendezvous::Error;
use kolo_schedule::Rank;

use self::channel::Channel;
use self::connections::Tcp;
use self::data_listener::DataListener;
use self::peer::is_within_host;
use super::interface::Transport;
use super::kind::{Connecting, Connector, Distance, TransportKind};
use crate::memory::Backing;

/// TCP connections, also between processes of one host.
pub static TCP: TransportKind = TransportKind {
    name: "tcp",
    about: "TCP, also on one host",
    reach: Distance::Network,
    backing: Backing::Heap,
    connector,
};

/// A listener for the ranks above this one, until all are connected.
struct TcpConnector<'a> {
    group: Connecting<'a>,
    listener: DataListener<'a>,
    /// The address of each rank's listener, once all have published theirs.
    addresses: Vec<SocketAddr>,
}

fn connector<'a>(group: &Connecting<'a>) -> Result<Option<Box<dyn Connector + 'a>>, Error> {
    let Some(advertised) = group.context.advertised.as_ref().filter(|_| group.world > 1) else {
        return Ok(None);
    };
    let listener = DataListener::listen(advertised, group.rank, group.world, &group.context.access)?;
    Ok(Some(Box::new(TcpConnector { group: *group, listener, addresses: Vec::new() })))
}

impl Connector for TcpConnector<'_> {
    fn address(&self) -> Result<String, Error> {
        Ok(self.listener.address()?.to_string())
    }

    fn prepare(&mut self, addresses: &[Option<String>]) -> Result<(), Error> {
        let parse = |(rank, address): (usize, &Option<String>)| {
            let parsed = address.as_ref().and_then(|text| text.parse().ok());
            let problem = || format!("it is {address:?}");
            parsed.ok_or_else(|| {
                Error::system(format!("rank {rank} has no address for data connections"), problem())
            })
        };
        self.addresses = addresses.iter().enumerate().map(parse).collect::<Result<_, Error>>()?;
        Ok(())
    }

    fn connect(self: Box<Self>, peers: &[Rank], on_host: usize) -> Result<Box<dyn Transport>, Error> {
        let channels = self.listener.connect_all(&self.group, &self.addresses, peers)?;
        let Connecting { context, liveness, .. } = self.group;
        let sockets = channels.iter().flatten().map(Channel::stream);
        sockets
            .filter(|socket| !is_within_host(socket))
            .try_for_each(|socket| context.congestion.set_up(socket))?;
        Ok(Box::new(Tcp::new(channels, on_host, context.delay, liveness)?))
    }
}

/// Decoders of this transport, for `crate::fuzzing`.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    pub(crate) use super::channel::Sealed;
    pub(crate) use super::data_listener::ConnectionId;
    pub(crate) use super::header::{HEADER, Header};
}
