//! Connections between ranks: who calls is called back by nobody, so one listener and one kind of call do.

use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::channel::Channel;
use kolo_rendezvous::AdvertisedAddress;
use kolo_rendezvous::Error;
use kolo_rendezvous::Liveness;
use kolo_rendezvous::secure::{Accepted, Access, HandshakeError, Protocol, SecureListener, connect};
use kolo_schedule::Rank;

/// A rank's listener for data, and its calls to others.
pub(crate) struct Calls<'a> {
    access: &'a Access,
    reach: &'a AdvertisedAddress,
    listener: SecureListener,
    callers: Receiver<(Caller, Channel)>,
}

impl<'a> Calls<'a> {
    pub(crate) fn listen(
        reach: &'a AdvertisedAddress,
        rank: Rank,
        world: usize,
        access: &'a Access,
    ) -> Result<Calls<'a>, Error> {
        access.may_listen(reach.ip())?;
        let listener = reach.listen(rank)?;
        let fail = |cause: std::io::Error| Error::system(format!("{rank} cannot listen {reach}"), cause);
        let (sender, callers) = mpsc::channel();
        let sender = Mutex::new(sender);
        let serve = move |accepted: Accepted| match Caller::decode(&accepted.identity) {
            // If nobody listens any more, all ranks that were expected are here.
            Some(caller) => drop(
                kolo_rendezvous::lock(&sender)
                    .send((caller, Channel::new(accepted.stream, accepted.session))),
            ),
            None => log::debug!("refused a data connection from a caller that is no rank"),
        };
        let listener = SecureListener::start(listener, access, Protocol::Data, world, serve).map_err(fail)?;
        Ok(Calls { access, reach, listener, callers })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        self.listener.address().map_err(|cause| Error::system("cannot read a listener's address", cause))
    }

    /// The next rank that has called, within `wait`.
    pub(crate) fn next(&self, wait: Duration) -> Option<(Caller, Channel)> {
        self.callers.recv_timeout(wait).ok()
    }

    /// Calls a peer, again where that may help.
    pub(crate) fn call(
        &self,
        caller: Caller,
        peer: Rank,
        address: SocketAddr,
        until: Instant,
        liveness: &Liveness,
    ) -> Result<Channel, Error> {
        let here = caller.rank;
        loop {
            match self.call_once(caller, address, until) {
                Ok(channel) => return Ok(channel),
                Err(cause) if !cause.is_transient() || Instant::now() >= until => {
                    let reach = self.reach;
                    let what = format!("{here}, reached {reach}, cannot connect to {peer} at {address}");
                    return Err(Error::system(what, cause));
                }
                Err(_) => {}
            }
            if let Some(error) = liveness.failure() {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn call_once(
        &self,
        caller: Caller,
        address: SocketAddr,
        until: Instant,
    ) -> Result<Channel, HandshakeError> {
        let rest = until.saturating_duration_since(Instant::now());
        let stream = TcpStream::connect_timeout(&address, rest.max(Duration::from_millis(1)))?;
        let _ = stream.set_nodelay(true);
        let session = connect(&stream, self.access, Protocol::Data, &caller.encode(), until)?;
        Ok(Channel::new(stream, session))
    }
}

/// Who calls, and which of its connections this is; as it says so in the handshake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Caller {
    pub(crate) rank: Rank,
    pub(crate) stream: usize,
}

impl Caller {
    fn encode(self) -> [u8; 8] {
        ((self.stream as u64) << 32 | self.rank.0 as u64).to_le_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Caller> {
        let number = u64::from_le_bytes(bytes.try_into().ok()?);
        Some(Caller { rank: Rank(number as u32 as usize), stream: (number >> 32) as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranks_are_ranks() {
        let caller = Caller { rank: Rank(7), stream: 3 };
        assert_eq!(Caller::decode(&caller.encode()), Some(caller));
        assert_eq!(Caller::decode(b"rank 7"), None);
        assert_eq!(Caller::decode(b""), None);
    }
}
