//! Data connections: the higher of two ranks connects to the lower one's listener, which never calls back.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::channel::Channel;
use crate::transport::kind::Connecting;
use kolo_rendezvous::secure::{
    Accepted, Access, HandshakeError, Protocol, SecureListener, connect, dial, is_loopback_down,
};
use kolo_rendezvous::{AdvertisedAddress, Error, Liveness, WaitNotice, is_out_of_files};
use kolo_schedule::Rank;

/// Longest time of one attempt to connect to a peer, longer than any round trip. Between attempts the
/// rank checks if the group has failed, because a peer whose host is gone answers nothing at all.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A rank's listener for data connections, and its own connections to other ranks' listeners.
pub(super) struct DataListener<'a> {
    access: &'a Access,
    advertised: &'a AdvertisedAddress,
    listener: SecureListener,
    accepted: Receiver<(ConnectionId, Channel)>,
}

impl<'a> DataListener<'a> {
    pub(super) fn listen(
        advertised: &'a AdvertisedAddress,
        rank: Rank,
        world: usize,
        access: &'a Access,
    ) -> Result<DataListener<'a>, Error> {
        access.may_listen(advertised.ip())?;
        let listener = advertised.listen(rank)?;
        let fail = |cause: std::io::Error| Error::io(format!("{rank} cannot listen {advertised}"), cause);
        let (sender, accepted) = mpsc::channel();
        let sender = Mutex::new(sender);
        let serve = move |incoming: Accepted| match ConnectionId::decode(&incoming.identity) {
            // If the receiver is gone, all expected ranks have connected.
            Some(id) => drop(sender.lock().send((id, Channel::new(incoming.stream, incoming.session)))),
            None => log::debug!("refused a data connection from a process that is no rank"),
        };
        let listener = SecureListener::start(listener, access, Protocol::Data, world, serve).map_err(fail)?;
        Ok(DataListener { access, advertised, listener, accepted })
    }

    pub(super) fn address(&self) -> Result<SocketAddr, Error> {
        self.listener.address().map_err(|cause| Error::system("cannot read a listener's address", cause))
    }

    fn next(&self, wait: Duration) -> Option<(ConnectionId, Channel)> {
        self.accepted.recv_timeout(wait).ok()
    }

    /// Returns the connections to each rank, in rank order: `opened_streams` to each of `peers`, none to
    /// others. This rank connects to the peers below it and accepts those above.
    pub(super) fn connect_all(
        &self,
        group: &Connecting<'_>,
        addresses: &[SocketAddr],
        peers: &[Rank],
    ) -> Result<Vec<Vec<Channel>>, Error> {
        let Connecting { rank, world, context, liveness } = *group;
        let mut channels: Vec<Vec<Option<Channel>>> = (0..world).map(|_| Vec::new()).collect();
        peers.iter().for_each(|peer| channels[peer.0].resize_with(context.opened_streams, || None));
        let (until, mut notice) = (Instant::now() + context.timeout, WaitNotice::new());
        for &peer in peers.iter().filter(|peer| **peer < rank) {
            for (stream, channel) in channels[peer.0].iter_mut().enumerate() {
                let id = ConnectionId { rank, stream };
                *channel = Some(self.connect(id, peer, addresses[peer.0], until, liveness)?);
            }
        }
        while let Some(&missing) = peers.iter().find(|peer| channels[peer.0].iter().any(Option::is_none)) {
            if let Some((id, channel)) = self.next(Duration::from_millis(50)) {
                let of_rank = channels.get_mut(id.rank.0).filter(|_| id.rank > rank);
                match of_rank.and_then(|streams| streams.get_mut(id.stream)) {
                    // A rank that connects again has lost its first connection.
                    Some(place) => *place = Some(channel),
                    None => log::debug!("refused a data connection: {id:?} does not connect to {rank}"),
                }
            }
            if let Some(error) = liveness.failure() {
                return Err(error);
            }
            if let Some(waited) = notice.due() {
                log::warn!("{missing} has not opened a data connection to {rank} after {waited:?}");
            }
            if Instant::now() > until {
                let (missing, address, waited) = (vec![missing], self.address()?, context.timeout);
                let refused = self.listener.token_refusals();
                return Err(Error::Missing { missing, address, waited, refused });
            }
        }
        Ok(channels.into_iter().map(|streams| streams.into_iter().flatten().collect()).collect())
    }

    /// Connects to a peer's listener; tries again after transient errors.
    fn connect(
        &self,
        id: ConnectionId,
        peer: Rank,
        address: SocketAddr,
        until: Instant,
        liveness: &Liveness,
    ) -> Result<Channel, Error> {
        let (here, mut notice) = (id.rank, WaitNotice::new());
        loop {
            let attempt = until.min(Instant::now() + ATTEMPT);
            match self.connect_once(id, address, attempt) {
                Ok(channel) => return Ok(channel),
                Err(HandshakeError::Broken(cause)) if is_out_of_files(&cause) => {
                    return Err(Error::io(format!("{here} cannot connect to {peer}"), cause));
                }
                Err(HandshakeError::Broken(cause)) if is_loopback_down(address.ip(), &cause) => {
                    return Err(Error::LoopbackDown { address: address.ip() });
                }
                Err(cause) if !cause.is_transient() || Instant::now() >= until => {
                    let (reached, cause) = (self.advertised.to_string(), cause.to_string());
                    return Err(Error::Unreachable { from: here, reached, to: peer, address, cause });
                }
                Err(cause) => {
                    if let Some(waited) = notice.due() {
                        log::warn!(
                            "{here} has tried to connect to {peer} at {address} for {waited:?}: {cause}"
                        );
                    }
                }
            }
            if let Some(error) = liveness.failure() {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn connect_once(
        &self,
        id: ConnectionId,
        address: SocketAddr,
        until: Instant,
    ) -> Result<Channel, HandshakeError> {
        let rest = until.saturating_duration_since(Instant::now());
        let stream = dial(address, rest.max(Duration::from_millis(1)))?;
        let session = connect(&stream, self.access, Protocol::Data, &id.encode(), until)?;
        Ok(Channel::new(stream, session))
    }
}

/// Identity in the handshake: the connecting rank, and the number of this one of its connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConnectionId {
    pub(crate) rank: Rank,
    pub(crate) stream: usize,
}

impl ConnectionId {
    fn encode(self) -> [u8; 8] {
        ((self.stream as u64) << 32 | self.rank.0 as u64).to_le_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<ConnectionId> {
        let number = u64::from_le_bytes(bytes.try_into().ok()?);
        Some(ConnectionId { rank: Rank(number as u32 as usize), stream: (number >> 32) as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranks_are_ranks() {
        let id = ConnectionId { rank: Rank(7), stream: 3 };
        assert_eq!(ConnectionId::decode(&id.encode()), Some(id));
        assert_eq!(ConnectionId::decode(b"rank 7"), None);
        assert_eq!(ConnectionId::decode(b""), None);
    }

    /// Without the check a rank waited for a dead host until its deadline, counted as hung, and was ended.
    #[test]
    fn a_group_that_fails_is_noticed_while_a_peer_does_not_answer() {
        // The silent listener's kernel takes connections that nothing accepts.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, access) = (silent.local_addr().unwrap(), Access::default());
        let endpoint = address.into();
        let advertised = AdvertisedAddress::choose(None, address.ip(), &endpoint);
        let listener = DataListener::listen(&advertised, Rank(1), 3, &access).unwrap();
        let liveness = Liveness::new(3);
        liveness.fail(Error::Died { rank: Rank(2) });
        let (id, until) = (ConnectionId { rank: Rank(1), stream: 0 }, Instant::now() + HOUR);
        let error = listener.connect(id, Rank(0), address, until, &liveness).err().unwrap();
        assert_eq!(error.culprit(), Some(Rank(2)), "{error}");
    }

    const HOUR: Duration = Duration::from_secs(3600);
}
