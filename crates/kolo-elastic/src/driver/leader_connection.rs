//! A follower's connection to the leader: two connections to the leader's store and a thread for each, so
//! that neither sending nor receiving ever blocks the coordinator.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Store;

use crate::launcher_protocol::{ConnectionId, Hello, ToFollower, ToLeader};
use crate::launcher_protocol::{connection_end_key, to_follower_key, to_leader_key};
use crate::timeouts::{HEARTBEAT, launcher_silence};

/// Maximum time that closing a connection waits for its last messages.
const LAST_MESSAGES: Duration = Duration::from_secs(2);

/// Number of the next connection of any launcher of this process.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// An open connection to the leader. On drop it sends pending messages, and then closes.
pub(crate) struct LeaderConnection {
    outgoing: Option<Sender<ToLeader>>,
    incoming: Receiver<Result<ToFollower, Error>>,
    sender: JoinHandle<()>,
    closing: Arc<AtomicBool>,
    pub(crate) local_ip: IpAddr,
}

impl LeaderConnection {
    /// Connects the launcher with this id to the leader at `address`.
    pub(crate) fn open(
        address: SocketAddr,
        launcher: u64,
        access: &Access,
        timeout: Duration,
    ) -> Result<LeaderConnection, Error> {
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let id = ConnectionId { launcher, number };
        let mut sending = Store::connect(address, access, timeout)?;
        let mut receiving = Store::connect(address, access, timeout)?;
        sending.set_timeout(launcher_silence())?;
        receiving.set_timeout(launcher_silence())?;
        receiving.will(&connection_end_key(id), encode(&ToLeader::ConnectionLost)?)?;
        let local_ip = sending.local_ip()?;
        let (outgoing, messages) = mpsc::channel();
        let (received, incoming) = mpsc::channel();
        let closing = Arc::new(AtomicBool::new(false));
        let failed = received.clone();
        let sender = spawn("kolo-to-leader", move || {
            if let Err(error) = send_all(&mut sending, id, &messages) {
                // After the connection is dropped, no receiver is left for the error.
                let _ = failed.send(Err(error));
            }
        })?;
        let is_closing = closing.clone();
        spawn("kolo-from-leader", move || {
            if let Err(error) = receive_all(&mut receiving, id, &received, &is_closing) {
                let _ = received.send(Err(error));
            }
        })?;
        Ok(LeaderConnection { outgoing: Some(outgoing), incoming, sender, closing, local_ip })
    }

    /// Introduces the launcher, and waits for the leader's answer. Returns the launcher's node rank.
    /// [`Error::LauncherRefused`]: the leader refuses the launcher.
    pub(crate) fn introduce(&self, hello: Hello, timeout: Duration) -> Result<usize, Error> {
        self.send(ToLeader::Hello(hello));
        match self.incoming.recv_timeout(timeout) {
            Ok(Ok(ToFollower::Welcome { node_rank })) => Ok(node_rank),
            Ok(Ok(ToFollower::Refused { reason })) => Err(Error::LauncherRefused { reason }),
            Ok(Ok(other)) => {
                Err(Error::system("this launcher does not understand the leading one", format!("{other:?}")))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                Err(Error::system("the leading launcher does not answer", format!("within {timeout:?}")))
            }
        }
    }

    /// Sends a message after all earlier messages. [`LeaderConnection::receive`] reports a failure.
    pub(crate) fn send(&self, message: ToLeader) {
        if let Some(outgoing) = &self.outgoing {
            let _ = outgoing.send(message);
        }
    }

    /// Returns the leader's next message, if one has arrived, or an error when the connection has broken.
    pub(crate) fn receive(&self) -> Option<Result<ToFollower, Error>> {
        match self.incoming.try_recv() {
            Ok(received) => Some(received),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(Error::system("the connection to the leader has ended", "it is closed")))
            }
        }
    }
}

impl Drop for LeaderConnection {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        // The sending thread ends when it has sent everything.
        self.outgoing = None;
        let until = Instant::now() + LAST_MESSAGES;
        while !self.sender.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|cause| Error::system("cannot start a thread", cause))
}

fn encode(message: &ToLeader) -> Result<String, Error> {
    serde_json::to_string(message).map_err(|cause| Error::system("a message cannot be encoded", cause))
}

fn send_all(store: &mut Store, id: ConnectionId, messages: &Receiver<ToLeader>) -> Result<(), Error> {
    for number in 0.. {
        let message = match messages.recv_timeout(HEARTBEAT) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => ToLeader::Heartbeat,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        store.set(&to_leader_key(id, number), encode(&message)?)?;
    }
    Ok(())
}

fn receive_all(
    store: &mut Store,
    id: ConnectionId,
    received: &Sender<Result<ToFollower, Error>>,
    closing: &AtomicBool,
) -> Result<(), Error> {
    let mut number = 0;
    while !closing.load(Ordering::Acquire) {
        let Some(text) = store.take(&to_follower_key(id, number), HEARTBEAT)? else { continue };
        number += 1;
        let message = serde_json::from_str(&text)
            .map_err(|cause| Error::system("this launcher does not understand the leading one", cause))?;
        if received.send(Ok(message)).is_err() {
            break;
        }
    }
    Ok(())
}
