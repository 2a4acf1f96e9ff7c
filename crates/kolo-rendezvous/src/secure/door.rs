//! A listener that no stranger can block, exhaust or crash.
//!
//! Every caller gets a thread of its own and [`HASTE`] for its handshake, so nobody waits for a silent one. The
//! number of callers within their handshake is bounded; beyond it the one that has waited longest goes, so that
//! whoever knows what to say gets through a flood of those who do not.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::access::Access;
use super::handshake::{self, Heard, Purpose};
use super::link::{HASTE, Hurried};
use super::record::Session;
use super::refusal::Refusal;
use crate::liveness::lock;

/// Callers within their handshake, besides two for every rank.
const WAITING: usize = 64;

/// A refused caller is listened to for a while, because what it has sent and nobody reads would make the kernel
/// take the answer back.
const FAREWELL: Duration = Duration::from_millis(500);

/// Somebody who may come in.
pub struct Visitor {
    pub stream: TcpStream,
    /// That all further bytes belong into, if there is one.
    pub session: Option<Session>,
    /// Who it says it is.
    pub identity: Vec<u8>,
}

/// A listener and its threads, which end on drop.
pub struct Door {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    listener: TcpListener,
    access: Access,
    purpose: Purpose,
    limit: usize,
    serve: Box<dyn Fn(Visitor) + Send + Sync>,
    waiting: Mutex<Waiting>,
    /// Threads within a handshake; an evicted caller's takes a moment to end.
    threads: AtomicUsize,
    complained: [AtomicBool; Refusal::ALL.len()],
}

/// Callers within their handshake, in the order in which they came.
#[derive(Default)]
struct Waiting {
    closing: bool,
    count: u64,
    streams: BTreeMap<u64, TcpStream>,
}

impl Door {
    /// Serves whoever comes in, each on a thread of its own, which `serve` must end when the door closes.
    pub fn open(
        listener: TcpListener,
        access: &Access,
        purpose: Purpose,
        world: usize,
        serve: impl Fn(Visitor) + Send + Sync + 'static,
    ) -> io::Result<Door> {
        let shared = Arc::new(Shared {
            listener,
            access: access.clone(),
            purpose,
            limit: WAITING.saturating_add(world.saturating_mul(2)),
            serve: Box::new(serve),
            waiting: Mutex::default(),
            threads: AtomicUsize::new(0),
            complained: Default::default(),
        });
        let for_thread = shared.clone();
        let accepting =
            std::thread::Builder::new().name("kolo-door".into()).spawn(move || accept(&for_thread))?;
        Ok(Door { shared, accepting: Some(accepting) })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.shared.listener.local_addr()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        {
            let mut waiting = lock(&self.shared.waiting);
            waiting.closing = true;
            // One that cannot be shut down is closed already.
            waiting.streams.values().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
        // On Linux this ends a blocked `accept`.
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.accepting.take() {
            // It ends with an error only by a bug, which has been printed as a panic.
            let _ = thread.join();
        }
    }
}

fn accept(shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    loop {
        let accepted = shared.listener.accept();
        if lock(&shared.waiting).closing {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        match accepted {
            Ok((stream, from)) => threads.extend(shared.hear(stream, from)),
            // No more descriptors, or a caller that hung up at once: others may have better luck.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

impl Shared {
    /// Gives a caller a thread, if there is room.
    fn hear(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) -> Option<JoinHandle<()>> {
        let copy = stream.try_clone().ok()?;
        let number = {
            let mut waiting = lock(&self.waiting);
            if waiting.streams.len() >= self.limit {
                self.complain(from, Refusal::Crowded);
                let longest = waiting.streams.pop_first();
                longest.into_iter().for_each(|(_, stream)| drop(stream.shutdown(Shutdown::Both)));
            }
            if self.threads.load(Ordering::SeqCst) >= 2 * self.limit {
                return None;
            }
            waiting.count += 1;
            let number = waiting.count;
            waiting.streams.insert(number, copy);
            number
        };
        self.threads.fetch_add(1, Ordering::SeqCst);
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("kolo-visitor".into());
        let thread = thread.spawn(move || shared.receive(stream, from, number));
        thread
            .inspect_err(|cause| {
                log::warn!("cannot start a thread for a connection from {from}: {cause}");
                self.threads.fetch_sub(1, Ordering::SeqCst);
                lock(&self.waiting).streams.remove(&number);
            })
            .ok()
    }

    fn receive(&self, stream: TcpStream, from: SocketAddr, number: u64) {
        // Without it small answers wait for the peer's acknowledgement; losing it costs time only.
        let _ = stream.set_nodelay(true);
        let until = Instant::now() + HASTE;
        let heard = handshake::answer(&mut Hurried { stream: &stream, until }, &self.access, self.purpose);
        if let Err(refusal) = &heard {
            self.complain(from, *refusal);
            say_farewell(&stream);
        }
        let still_waiting = lock(&self.waiting).streams.remove(&number).is_some();
        let visitor = match heard {
            Ok(heard) if still_waiting => welcome(heard, stream, until).ok(),
            // One that was pushed aside while it finished calls again.
            _ => None,
        };
        self.threads.fetch_sub(1, Ordering::SeqCst);
        visitor.into_iter().for_each(|visitor| (self.serve)(visitor));
    }

    /// Warns once for each reason, so that nobody can fill the log.
    fn complain(&self, from: SocketAddr, refusal: Refusal) {
        let kind = Refusal::ALL.iter().position(|known| *known == refusal);
        let first = kind.is_none_or(|kind| !self.complained[kind].swap(true, Ordering::SeqCst));
        let level = if first { log::Level::Warn } else { log::Level::Debug };
        let to = match self.purpose {
            Purpose::Store => "the store",
            Purpose::Data => "a data listener",
        };
        log::log!(
            level,
            "refused a connection from {from} to {to}: {refusal} (later ones are logged as debug)"
        );
    }
}

fn welcome(heard: Heard, stream: TcpStream, until: Instant) -> io::Result<Visitor> {
    let identity = heard.identity.clone();
    let session = heard.welcome(&mut Hurried { stream: &stream, until })?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(Visitor { stream, session, identity })
}

fn say_farewell(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let mut hurried = Hurried { stream, until: Instant::now() + FAREWELL };
    let (mut bytes, mut read) = ([0; 512], 0);
    while read < 16 * bytes.len() {
        match hurried.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(count) => read += count,
        }
    }
}
