//! Messages that have arrived at a rank, and requests for those that have not.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use kolo_rendezvous::secure::{Accepted, SecureStream};
use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::Rank;

/// Time between two looks at the group's liveness while a receiver waits.
const TURN: Duration = Duration::from_millis(50);
/// Time in which the last messages of a rank that has left may still arrive.
const AFTER_LEAVING: Duration = Duration::from_secs(1);
/// Bytes of a message that get addresses before they arrive; they take memory as they do.
const TRUSTED: usize = 64 << 20;

/// One rank's messages.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

/// Messages that have arrived unasked for, and requests whose messages have not arrived: a message never
/// stands in the first while a request for it stands in the second.
#[derive(Default)]
struct State {
    arrived: VecDeque<(Rank, u64, Vec<u8>)>,
    /// In the order of their calls.
    asked: BTreeMap<u64, Asked>,
    answered: BTreeMap<u64, (Rank, Vec<u8>)>,
    calls: u64,
    /// Connections that are read, which end with this rank's messages.
    incoming: Vec<TcpStream>,
    closing: bool,
}

/// A request for a message.
pub(super) struct Asked {
    pub(super) from: Option<Rank>,
    pub(super) tag: u64,
    /// Takes the bytes as soon as they are here. Without it they are kept until somebody waits for them.
    pub(super) take: Option<Take>,
}

/// Function that takes the bytes of a message.
pub(super) type Take = Box<dyn FnOnce(&[u8]) + Send>;

impl Asked {
    fn fits(&self, sender: Rank, tag: u64) -> bool {
        self.tag == tag && self.from.is_none_or(|from| from == sender)
    }

    /// Returns what is left of a message for whoever waits for it.
    fn answer(self, data: Vec<u8>) -> Vec<u8> {
        match self.take {
            Some(take) => {
                take(&data);
                Vec::new()
            }
            None => data,
        }
    }
}

impl Inbox {
    /// Closes the connections, and takes no more.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        // A connection that is closed already needs no end.
        state.incoming.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Notes a request, and returns its number.
    pub(super) fn ask(&self, asked: Asked) -> u64 {
        let mut state = self.state.lock();
        let call = state.calls;
        state.calls += 1;
        let place = state.arrived.iter().position(|(sender, tag, _)| asked.fits(*sender, *tag));
        match place.and_then(|index| state.arrived.remove(index)) {
            Some((sender, _, data)) => drop(state.answered.insert(call, (sender, asked.answer(data)))),
            None => drop(state.asked.insert(call, asked)),
        }
        call
    }

    /// Gives a message to the first request that it fits, or keeps it.
    pub(super) fn deliver(&self, sender: Rank, tag: u64, data: Vec<u8>) {
        let mut state = self.state.lock();
        let call = state.asked.iter().find(|(_, asked)| asked.fits(sender, tag)).map(|(call, _)| *call);
        match call.and_then(|call| Some((call, state.asked.remove(&call)?))) {
            Some((call, asked)) => {
                state.answered.insert(call, (sender, asked.answer(data)));
                self.changed.notify_all();
            }
            None => state.arrived.push_back((sender, tag, data)),
        }
    }

    /// Reads the messages of one connection, until either end closes it. Its end is no error here: the
    /// group's liveness knows whether the sender has died.
    pub(super) fn serve(&self, accepted: Accepted, world: usize) {
        let Accepted { stream, session, identity } = accepted;
        let Some(sender) = sender(&identity, world) else { return };
        {
            let mut state = self.state.lock();
            let Some(copy) = stream.try_clone().ok().filter(|_| !state.closing) else { return };
            state.incoming.push(copy);
        }
        let mut stream = SecureStream::new(stream, session);
        while let Ok((tag, data)) = read(&mut stream) {
            self.deliver(sender, tag, data);
        }
    }
}

fn sender(identity: &[u8], world: usize) -> Option<Rank> {
    let rank = usize::try_from(u64::from_le_bytes(identity.try_into().ok()?)).ok()?;
    (rank < world).then_some(Rank(rank))
}

fn read(stream: &mut SecureStream) -> io::Result<(u64, Vec<u8>)> {
    let (mut tag, mut len) = ([0; 8], [0; 8]);
    stream.read_exact(&mut tag)?;
    stream.read_exact(&mut len)?;
    let len = usize::try_from(u64::from_le_bytes(len)).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut data = Vec::new();
    while data.len() < len {
        // As much again as has arrived, and no more than the message has.
        let more = (len - data.len()).min(data.len().max(TRUSTED));
        data.reserve_exact(more);
        if Read::by_ref(stream).take(more as u64).read_to_end(&mut data)? < more {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok((u64::from_le_bytes(tag), data))
}

/// A message that was asked for. Dropping it withdraws the request; a message that has answered it is lost.
pub struct Receiving {
    pub(super) call: u64,
    /// The job's rank of the sender; `None` if any may send.
    pub(super) from: Option<Rank>,
    /// The job's rank of this process.
    pub(super) here: Rank,
    pub(super) inbox: Arc<Inbox>,
    pub(super) liveness: Arc<Liveness>,
    pub(super) timeout: Duration,
    /// Time at which this rank noticed that the sender has left.
    pub(super) left: Option<Instant>,
}

kolo_schedule::opaque_debug!(Receiving { call, here, timeout });

impl Receiving {
    /// Waits for the message; returns its sender and its bytes.
    ///
    /// # Errors
    ///
    /// The group has failed, the sender has left, or nothing came within the group's timeout.
    pub fn wait(mut self) -> Result<(Rank, Vec<u8>), Error> {
        let (rank, waited) = (self.from.unwrap_or(self.here), self.timeout);
        self.wait_for(waited)?.ok_or(Error::Timeout { rank, during: "receive".into(), waited })
    }

    /// Waits at most `timeout` for the message; `None` if it has not arrived.
    ///
    /// # Errors
    ///
    /// The group has failed, or the sender has left.
    pub fn wait_for(&mut self, timeout: Duration) -> Result<Option<(Rank, Vec<u8>)>, Error> {
        let until = Instant::now() + timeout;
        let mut state = self.inbox.state.lock();
        loop {
            if let Some(answer) = state.answered.remove(&self.call) {
                return Ok(Some(answer));
            }
            if let Some(error) = self.liveness.failure() {
                return Err(error);
            }
            if let Some(rank) = self.from.filter(|rank| self.liveness.has_left(*rank))
                && self.left.get_or_insert_with(Instant::now).elapsed() > AFTER_LEAVING
            {
                return Err(Error::Left { rank, during: "receive".into() });
            }
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(None);
            }
            self.inbox.changed.wait_for(&mut state, rest.min(TURN));
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let mut state = self.inbox.state.lock();
        state.asked.remove(&self.call);
        state.answered.remove(&self.call);
    }
}
