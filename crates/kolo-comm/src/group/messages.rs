//! Messages between two ranks, with tags, beside the collectives of their group.
//!
//! [`Group::send`] is a collective of two ranks: it has its place among the others. A message here has none.
//! A sender does not wait for its receiver, which keeps a message until somebody asks for it. Every rank
//! listens at a port of its own. A sender connects with its first message to a rank; one thread of the
//! receiver reads each connection. Messages from one rank with one tag arrive in the order of their sends.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Group;
use kolo_rendezvous::secure::{Accepted, Access, Protocol, SecureListener, SecureStream, connect, dial};
use kolo_rendezvous::{Error, InvalidCall, Liveness};
use kolo_schedule::Rank;

/// Time between two looks at the group's liveness while a receiver waits.
const TURN: Duration = Duration::from_millis(50);
/// Time in which the last messages of a rank that has left may still arrive.
const AFTER_LEAVING: Duration = Duration::from_secs(1);
/// Bytes before each message: its tag and its length.
const HEADER: usize = 16;
/// Bytes of a message that get addresses before they arrive; they take memory as they do.
const TRUSTED: usize = 64 << 20;

/// Messages between the ranks of a group; from [`Group::messages`].
///
/// ```
/// let group = kolo_comm::Group::from_env()?;
/// let messages = group.messages()?;
/// messages.send(b"a note to myself", group.rank(), 7)?;
/// let (from, bytes) = messages.receive(None, 7)?.wait()?;
/// # assert_eq!((from, &bytes[..]), (group.rank(), &b"a note to myself"[..]));
/// # Ok::<(), kolo_comm::Error>(())
/// ```
pub struct Messages {
    rank: Rank,
    /// The job's rank of each rank of the group.
    members: Arc<[Rank]>,
    liveness: Arc<Liveness>,
    timeout: Duration,
    access: Access,
    /// Where each rank listens.
    addresses: Vec<SocketAddr>,
    outgoing: Vec<Mutex<Option<SecureStream>>>,
    /// Connections of `outgoing`, which a send may hold.
    opened: Mutex<Vec<TcpStream>>,
    inbox: Arc<Inbox>,
    listener: Option<SecureListener>,
}

kolo_schedule::opaque_debug!(Messages { rank, members, timeout });

#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

/// Messages that have arrived unasked for, and requests whose messages have not arrived: a message never
/// stands in the first while a request for it stands in the second.
#[derive(Default)]
struct State {
    arrived: VecDeque<(Rank, u64, Vec<u8>)>,
    /// In the order of their calls.
    asked: BTreeMap<u64, (Option<Rank>, u64)>,
    answered: BTreeMap<u64, (Rank, Vec<u8>)>,
    calls: u64,
    /// Connections that are read, which end with this rank's [`Messages`].
    incoming: Vec<TcpStream>,
    closing: bool,
}

impl Group {
    /// Opens the group's messages. All ranks must call it at the same place among their collectives.
    ///
    /// # Errors
    ///
    /// This rank cannot listen, or the group's backend hides its connections, as MPI does; otherwise the
    /// errors of [`Group::run`].
    pub fn messages(&self) -> Result<Messages, Error> {
        let Some(context) = &self.context else {
            return Err(InvalidCall::NotInPlace { transport: self.transport().into() }.into());
        };
        let inbox = Arc::new(Inbox::default());
        let (access, world) = (context.access.clone(), self.world_size());
        let (mut listener, mut own) = (None, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        if world > 1 {
            let fail = |cause| Error::io(format!("{} cannot listen for messages", self.rank()), cause);
            let socket = match &context.advertised {
                Some(advertised) => advertised.listen(self.rank())?,
                None => TcpListener::bind(own).map_err(fail)?,
            };
            own = socket.local_addr().map_err(fail)?;
            let for_listener = inbox.clone();
            let serve = move |accepted| for_listener.serve(accepted, world);
            listener =
                Some(SecureListener::start(socket, &access, Protocol::Data, world, serve).map_err(fail)?);
        }
        let addresses = self.all_gather_value(&own)?;
        Ok(Messages {
            rank: self.rank(),
            members: self.members.clone(),
            liveness: self.shared.liveness.clone(),
            timeout: self.timeout(),
            access,
            addresses,
            outgoing: (0..world).map(|_| Mutex::default()).collect(),
            opened: Mutex::default(),
            inbox,
            listener,
        })
    }
}

impl Messages {
    /// Sends a message. Returns as soon as `data` may change, which does not mean that it has arrived.
    ///
    /// # Errors
    ///
    /// There is no rank `to`, it cannot be reached, or the group has failed.
    pub fn send(&self, data: &[u8], to: Rank, tag: u64) -> Result<(), Error> {
        self.check("send", to)?;
        if to == self.rank {
            self.inbox.deliver(self.rank, tag, data.to_vec());
            return Ok(());
        }
        let name = self.members[to.0];
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        let mut stream = self.outgoing[to.0].lock();
        let sent = self.open(&mut stream, to).and_then(|stream| {
            let mut header = [0; HEADER];
            header[..8].copy_from_slice(&tag.to_le_bytes());
            header[8..].copy_from_slice(&(data.len() as u64).to_le_bytes());
            stream.write_all(&header)?;
            stream.write_all(data)
        });
        sent.map_err(|cause| {
            *stream = None;
            match self.liveness.wait_for_failure(Duration::from_secs(1)) {
                Some(failure) => failure,
                None if self.liveness.has_left(name) => Error::Left { rank: name, during: "send".into() },
                None => Error::Unreachable {
                    from: self.members[self.rank.0],
                    reached: "by messages".into(),
                    to: name,
                    address: self.addresses[to.0],
                    cause: cause.to_string(),
                },
            }
        })
    }

    /// Asks for the next message with a tag, of one rank or of any. Requests are answered in their order.
    ///
    /// # Errors
    ///
    /// There is no rank `from`.
    pub fn receive(&self, from: Option<Rank>, tag: u64) -> Result<Receiving, Error> {
        from.map_or(Ok(()), |from| self.check("receive", from))?;
        Ok(Receiving {
            call: self.inbox.ask(from, tag),
            from: from.map(|from| self.members[from.0]),
            here: self.members[self.rank.0],
            inbox: self.inbox.clone(),
            liveness: self.liveness.clone(),
            timeout: self.timeout,
            left: None,
        })
    }

    /// Closes the connections of this rank's sends. A send that waits for a rank that does not read fails.
    pub fn stop_sending(&self) {
        // A connection that is closed already needs no end.
        self.opened.lock().iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    fn check(&self, operation: &str, peer: Rank) -> Result<(), InvalidCall> {
        let world = self.members.len();
        match peer.0 < world {
            true => Ok(()),
            false => Err(InvalidCall::Root { operation: operation.into(), root: peer, world }),
        }
    }

    fn open<'a>(&self, stream: &'a mut Option<SecureStream>, to: Rank) -> io::Result<&'a mut SecureStream> {
        if stream.is_none() {
            let until = Instant::now() + self.timeout.min(Duration::from_secs(20));
            let socket = dial(self.addresses[to.0], Duration::from_secs(5))?;
            let identity = (self.rank.0 as u64).to_le_bytes();
            let session = connect(&socket, &self.access, Protocol::Data, &identity, until)
                .map_err(|error| io::Error::other(error.to_string()))?;
            self.opened.lock().push(socket.try_clone()?);
            let opened = SecureStream::new(socket, session);
            opened.set_timeout(Some(self.timeout))?;
            *stream = Some(opened);
        }
        stream.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        let mut state = self.inbox.state.lock();
        state.closing = true;
        // A connection that is closed already needs no end.
        state.incoming.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        drop(state);
        self.listener = None;
    }
}

impl Inbox {
    fn ask(&self, from: Option<Rank>, tag: u64) -> u64 {
        let mut state = self.state.lock();
        let call = state.calls;
        state.calls += 1;
        let fits =
            |(sender, its, _): &(Rank, u64, Vec<u8>)| *its == tag && from.is_none_or(|from| from == *sender);
        match state.arrived.iter().position(fits).and_then(|index| state.arrived.remove(index)) {
            Some((sender, _, data)) => drop(state.answered.insert(call, (sender, data))),
            None => drop(state.asked.insert(call, (from, tag))),
        }
        call
    }

    fn deliver(&self, sender: Rank, tag: u64, data: Vec<u8>) {
        let mut state = self.state.lock();
        let fits = |(from, its): &(Option<Rank>, u64)| *its == tag && from.is_none_or(|from| from == sender);
        match state.asked.iter().find(|(_, asked)| fits(asked)).map(|(call, _)| *call) {
            Some(call) => {
                state.asked.remove(&call);
                state.answered.insert(call, (sender, data));
                self.changed.notify_all();
            }
            None => state.arrived.push_back((sender, tag, data)),
        }
    }

    /// Reads the messages of one connection, until either end closes it. Its end is no error here: the
    /// group's liveness knows whether the sender has died.
    fn serve(&self, accepted: Accepted, world: usize) {
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
    call: u64,
    /// The job's rank of the sender; `None` if any may send.
    from: Option<Rank>,
    /// The job's rank of this process.
    here: Rank,
    inbox: Arc<Inbox>,
    liveness: Arc<Liveness>,
    timeout: Duration,
    /// Time at which this rank noticed that the sender has left.
    left: Option<Instant>,
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
