//! A listener that no stranger can block, exhaust or crash.
//!
//! Every connection gets its own thread and [`HANDSHAKE_TIMEOUT`] for its handshake, so a silent peer delays
//! nobody. The number of concurrent handshakes is bounded; beyond it the listener drops the oldest, so that
//! a peer with the token gets through a flood of strangers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::access::Access;
use super::error::RejectReason;
use super::handshake::{self, Authenticated, Protocol};
use super::record::Session;
use super::stream::{DeadlineStream, HANDSHAKE_TIMEOUT};
use crate::error::{Error, is_out_of_files};
use crate::wait_notice::WaitNotice;

/// Maximum number of concurrent handshakes, besides two for every rank.
const HANDSHAKES: usize = 64;

/// Number of connections that the kernel queues until they are accepted, up to `net.core.somaxconn`. All
/// ranks of a job may connect in the same moment; one that finds the queue full tries again a second later.
const BACKLOG: i32 = 4096;

/// Number of hosts with a wrong token that a listener remembers.
const REMEMBERED: usize = 8;

/// Time for which a listener reads on from a peer that it has rejected: the kernel would discard the answer
/// if the peer's bytes stayed unread.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection after its handshake.
pub struct Accepted {
    /// The connection.
    pub stream: TcpStream,
    /// Session for all further bytes, if the connection stays encrypted.
    pub session: Option<Session>,
    /// Identity that the peer sent about itself, at most 240 bytes.
    pub identity: Vec<u8>,
}

kolo_schedule::opaque_debug!(Accepted { stream });

/// A listener and its threads, which end on drop.
pub struct SecureListener {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

kolo_schedule::opaque_debug!(SecureListener);

struct Shared {
    listener: TcpListener,
    access: Access,
    protocol: Protocol,
    limit: usize,
    serve: Box<dyn Fn(Accepted) + Send + Sync>,
    pending: Mutex<Pending>,
    /// Threads within a handshake; the thread of a dropped connection takes a moment to end.
    threads: AtomicUsize,
    /// For each reason, true if a warning was logged.
    warned: [AtomicBool; RejectReason::ALL.len()],
    /// Hosts that were rejected because of their token, the first [`REMEMBERED`] of them.
    token_refusals: Mutex<BTreeSet<IpAddr>>,
    /// Time and cause since which no thread could be started for a connection.
    without_threads: Mutex<Option<(Instant, String)>>,
}

/// Connections within their handshake, in order of arrival.
#[derive(Default)]
struct Pending {
    closing: bool,
    count: u64,
    streams: BTreeMap<u64, (TcpStream, SocketAddr)>,
}

impl SecureListener {
    /// Accepts connections for a job of `world` ranks until the value is dropped. Passes each accepted
    /// connection to `serve` on its own thread, which `serve` must end when the listener is dropped.
    ///
    /// # Errors
    ///
    /// The operating system cannot start a thread.
    pub fn start(
        listener: TcpListener,
        access: &Access,
        protocol: Protocol,
        world: usize,
        serve: impl Fn(Accepted) + Send + Sync + 'static,
    ) -> io::Result<SecureListener> {
        // Raises the standard library's backlog of 128: `listen` may be called again on a listening socket.
        let _ = rustix::net::listen(&listener, BACKLOG);
        let shared = Arc::new(Shared {
            listener,
            access: access.clone(),
            protocol,
            limit: HANDSHAKES.saturating_add(world.saturating_mul(2)),
            serve: Box::new(serve),
            pending: Mutex::default(),
            threads: AtomicUsize::new(0),
            warned: Default::default(),
            token_refusals: Mutex::default(),
            without_threads: Mutex::default(),
        });
        let for_thread = shared.clone();
        let accepting =
            std::thread::Builder::new().name("kolo-listener".into()).spawn(move || accept(&for_thread))?;
        Ok(SecureListener { shared, accepting: Some(accepting) })
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    ///
    /// The operating system does not return the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.shared.listener.local_addr()
    }

    /// Returns the first few hosts whose token differed from the job's, or that had a token where the job
    /// has none or vice versa.
    pub fn token_refusals(&self) -> Vec<IpAddr> {
        self.shared.token_refusals.lock().iter().copied().collect()
    }

    /// Returns the time for which every connection has been closed because no thread could be started for
    /// it, and the cause; `None` if the last one was served.
    pub fn without_threads(&self) -> Option<(Duration, String)> {
        let since = self.shared.without_threads.lock().clone();
        since.map(|(since, cause)| (since.elapsed(), cause))
    }
}

impl Drop for SecureListener {
    fn drop(&mut self) {
        {
            let mut pending = self.shared.pending.lock();
            pending.closing = true;
            // A stream that cannot be shut down is closed already.
            pending.streams.values().for_each(|(stream, _)| drop(stream.shutdown(Shutdown::Both)));
        }
        // On Linux this ends a blocked `accept`.
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.accepting.take() {
            // The thread panics only because of a bug, and the panic has been printed.
            let _ = thread.join();
        }
    }
}

fn accept(shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut notice = None;
    loop {
        let accepted = shared.listener.accept();
        if shared.pending.lock().closing {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        match accepted {
            Ok((stream, from)) => match shared.begin_handshake(stream, from) {
                Ok(thread) => threads.extend(thread),
                Err(cause) => cannot_accept(cause, &mut notice),
            },
            // Out of descriptors, or the peer hung up at once: the next attempt may succeed.
            Err(cause) => {
                cannot_accept(cause, &mut notice);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

/// Warns, at once and then periodically, that this process is out of files and that peers wait.
fn cannot_accept(cause: io::Error, notice: &mut Option<WaitNotice>) {
    let due = notice.as_mut().is_none_or(|notice| notice.due().is_some());
    if is_out_of_files(&cause) && due {
        notice.get_or_insert_default();
        let error = Error::io("cannot accept a connection", cause);
        log::warn!("{error}; Kolo tries again");
    }
}

impl Shared {
    /// Starts a thread for a connection, if the limits permit.
    /// Without a second descriptor the connection is closed, and the peer connects again.
    fn begin_handshake(
        self: &Arc<Self>,
        stream: TcpStream,
        from: SocketAddr,
    ) -> io::Result<Option<JoinHandle<()>>> {
        let copy = stream.try_clone()?;
        let number = {
            let mut pending = self.pending.lock();
            if pending.streams.len() >= self.limit
                && let Some((_, (oldest, from))) = pending.streams.pop_first()
            {
                self.drop_crowded(&oldest, from);
            }
            if self.threads.load(Ordering::SeqCst) >= self.limit.saturating_mul(2) {
                self.drop_crowded(&stream, from);
                return Ok(None);
            }
            pending.count += 1;
            let number = pending.count;
            pending.streams.insert(number, (copy, from));
            number
        };
        self.threads.fetch_add(1, Ordering::SeqCst);
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("kolo-accepted".into());
        let thread = thread.spawn(move || shared.handle(stream, from, number));
        let mut without = self.without_threads.lock();
        match thread {
            Ok(thread) => {
                *without = None;
                Ok(Some(thread))
            }
            Err(cause) => {
                if without.is_none() {
                    log::warn!(
                        "cannot start a thread for a connection from {from}: {cause}; Kolo tries again"
                    );
                    *without = Some((Instant::now(), cause.to_string()));
                }
                self.threads.fetch_sub(1, Ordering::SeqCst);
                self.pending.lock().streams.remove(&number);
                Ok(None)
            }
        }
    }

    /// Tells a peer that there are too many handshakes, and ends its own.
    fn drop_crowded(&self, mut stream: &TcpStream, from: SocketAddr) {
        self.log_rejection(from, RejectReason::Crowded);
        // The peer has hardly been sent anything, so the kernel takes this at once; it may be gone, too.
        let _ = stream.write_all(&[0, 0, RejectReason::Crowded as u8]);
        let _ = stream.shutdown(Shutdown::Both);
    }

    /// Runs the thread of one connection: its handshake, then `serve`.
    fn handle(&self, stream: TcpStream, from: SocketAddr, number: u64) {
        // Without this, small answers wait for the peer's acknowledgment; a failure costs only time.
        let _ = stream.set_nodelay(true);
        let until = Instant::now() + HANDSHAKE_TIMEOUT;
        let peer =
            handshake::respond(&mut DeadlineStream { stream: &stream, until }, &self.access, self.protocol);
        if let Err(reason) = &peer {
            // A connection that was dropped has been logged.
            if self.pending.lock().streams.contains_key(&number) {
                self.log_rejection(from, *reason);
            }
            drain(&stream);
        }
        let still_pending = self.pending.lock().streams.remove(&number).is_some();
        let accepted = match peer {
            Ok(peer) if still_pending => accept_peer(peer, stream, until).ok(),
            // A peer whose connection was dropped while it finished connects again.
            _ => None,
        };
        self.threads.fetch_sub(1, Ordering::SeqCst);
        accepted.into_iter().for_each(|accepted| (self.serve)(accepted));
    }

    /// Records a rejection of the token, and warns once for each reason, so that nobody can fill the log.
    fn log_rejection(&self, from: SocketAddr, reason: RejectReason) {
        if reason.is_of_token() {
            let mut refused = self.token_refusals.lock();
            if refused.len() < REMEMBERED {
                refused.insert(from.ip().to_canonical());
            }
        }
        let index = RejectReason::ALL.iter().position(|known| *known == reason);
        let first = index.is_none_or(|index| !self.warned[index].swap(true, Ordering::SeqCst));
        let level = if first { log::Level::Warn } else { log::Level::Debug };
        let to = match self.protocol {
            Protocol::Store => "the store",
            Protocol::Data => "a data listener",
        };
        log::log!(
            level,
            "refused a connection from {from} to {to}: {reason} (later ones are logged as debug)"
        );
    }
}

fn accept_peer(peer: Authenticated, stream: TcpStream, until: Instant) -> io::Result<Accepted> {
    let identity = peer.identity.clone();
    let session = peer.accept(&mut DeadlineStream { stream: &stream, until })?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(Accepted { stream, session, identity })
}

/// Reads the rest of a rejected peer's bytes, see [`DRAIN_TIMEOUT`].
fn drain(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let mut limited = DeadlineStream { stream, until: Instant::now() + DRAIN_TIMEOUT };
    let (mut bytes, mut read) = ([0; 512], 0);
    while read < 16 * bytes.len() {
        match limited.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(count) => read += count,
        }
    }
}

#[cfg(test)]
mod tests;
