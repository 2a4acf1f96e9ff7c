//! Connections between ranks: who calls is called back by nobody, so one listener and one kind of call do.

use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::access::Access;
use super::door::{Door, Visitor};
use super::handshake::Purpose;
use super::link::introduce;
use super::refusal::CallError;
use crate::error::Error;
use crate::interface::Reach;
use crate::liveness::Liveness;
use crate::rank::Rank;
use crate::transport::channel::Channel;

/// A rank's listener for data, and its calls to others.
pub(crate) struct Calls<'a> {
    access: &'a Access,
    reach: &'a Reach,
    door: Door,
    callers: Receiver<(Rank, Channel)>,
}

impl<'a> Calls<'a> {
    pub(crate) fn listen(
        reach: &'a Reach,
        rank: Rank,
        world: usize,
        access: &'a Access,
    ) -> Result<Calls<'a>, Error> {
        access.may_listen(reach.ip())?;
        let listener = reach.listen(rank)?;
        let fail = |cause: std::io::Error| Error::system(format!("{rank} cannot listen {reach}"), cause);
        let (sender, callers) = mpsc::channel();
        let sender = Mutex::new(sender);
        let serve = move |visitor: Visitor| match decode_rank(&visitor.identity) {
            // If nobody listens any more, all ranks that were expected are here.
            Some(rank) => drop(
                crate::liveness::lock(&sender).send((rank, Channel::new(visitor.stream, visitor.session))),
            ),
            None => log::debug!("refused a data connection from a caller that is no rank"),
        };
        let door = Door::open(listener, access, Purpose::Data, world, serve).map_err(fail)?;
        Ok(Calls { access, reach, door, callers })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        self.door.address().map_err(|cause| Error::system("cannot read a listener's address", cause))
    }

    /// The next rank that has called, within `wait`.
    pub(crate) fn next(&self, wait: Duration) -> Option<(Rank, Channel)> {
        self.callers.recv_timeout(wait).ok()
    }

    /// Calls a peer, again where that may help.
    pub(crate) fn call(
        &self,
        here: Rank,
        peer: Rank,
        address: SocketAddr,
        until: Instant,
        liveness: &Liveness,
    ) -> Result<Channel, Error> {
        loop {
            match self.call_once(here, address, until) {
                Ok(channel) => return Ok(channel),
                Err(cause) if !cause.passes() || Instant::now() >= until => {
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

    fn call_once(&self, here: Rank, address: SocketAddr, until: Instant) -> Result<Channel, CallError> {
        let rest = until.saturating_duration_since(Instant::now());
        let stream = TcpStream::connect_timeout(&address, rest.max(Duration::from_millis(1)))?;
        let _ = stream.set_nodelay(true);
        let session = introduce(&stream, self.access, Purpose::Data, &encode_rank(here), until)?;
        Ok(Channel::new(stream, session))
    }
}

/// Who calls, as it says so in the handshake.
fn encode_rank(rank: Rank) -> [u8; 8] {
    (rank.0 as u64).to_le_bytes()
}

pub(crate) fn decode_rank(bytes: &[u8]) -> Option<Rank> {
    let number = u64::from_le_bytes(bytes.try_into().ok()?);
    usize::try_from(number).ok().map(Rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranks_are_ranks() {
        assert_eq!(decode_rank(&encode_rank(Rank(7))), Some(Rank(7)));
        assert_eq!(decode_rank(b"rank 7"), None);
        assert_eq!(decode_rank(b""), None);
    }
}
