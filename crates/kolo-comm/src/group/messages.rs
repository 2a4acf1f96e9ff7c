//! Messages between two ranks, with tags, beside the collectives of their group.
//!
//! [`Group::send`] is a collective of two ranks: it has its place among the others. A message here has none.
//! A sender does not wait for its receiver, which keeps a message until somebody asks for it. Every rank
//! listens at a port of its own. A sender connects with its first message to a rank; one thread of the
//! receiver reads each connection. Messages from one rank with one tag arrive in the order of their sends.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Group;
use super::inbox::{Asked, Inbox, Receiving};
use kolo_rendezvous::secure::{Access, Protocol, SecureListener, SecureStream, connect, dial};
use kolo_rendezvous::{Error, InvalidCall, Liveness};
use kolo_schedule::Rank;

/// Bytes before each message: its tag and its length.
const HEADER: usize = 16;

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
        self.ask(Asked { from, tag, take: None })
    }

    /// Does the same as [`Messages::receive`], but `take` gets the bytes as soon as they are here, on the
    /// thread that reads them, and [`Receiving::wait`] returns none. So messages that nobody waits for yet
    /// take no memory of their own. `take` must not wait for other messages.
    ///
    /// # Errors
    ///
    /// See [`Messages::receive`].
    pub fn receive_by(
        &self,
        from: Option<Rank>,
        tag: u64,
        take: impl FnOnce(&[u8]) + Send + 'static,
    ) -> Result<Receiving, Error> {
        self.ask(Asked { from, tag, take: Some(Box::new(take)) })
    }

    fn ask(&self, asked: Asked) -> Result<Receiving, Error> {
        let from = asked.from;
        from.map_or(Ok(()), |from| self.check("receive", from))?;
        Ok(Receiving {
            call: self.inbox.ask(asked),
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
        self.inbox.close();
        self.listener = None;
    }
}
