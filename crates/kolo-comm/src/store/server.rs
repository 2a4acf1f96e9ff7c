//! The store's serving side, on rank 0. One thread for each connection; they are few and they sleep.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::wire::{self, Reply, Request};
use crate::error::Error;
use crate::liveness::{culprit, lock};
use crate::rank::Rank;

#[derive(Default)]
struct State {
    values: HashMap<String, String>,
    watches: HashMap<Rank, TcpStream>,
    left: BTreeSet<Rank>,
    failed: Option<Error>,
    /// Answers to a probe.
    waiting: HashMap<Rank, Option<Rank>>,
    /// Probes that are going on.
    investigations: usize,
    /// Every connection, to be shut down at the end.
    connections: Vec<TcpStream>,
    closing: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A running store. Ends on drop.
pub(crate) struct Server {
    shared: Arc<Shared>,
    listener: TcpListener,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `address`; port 0 takes a free one.
    pub(crate) fn start(address: SocketAddr) -> Result<Server, Error> {
        let fail = |cause: io::Error| Error::Listen { address, cause: cause.to_string() };
        let listener = TcpListener::bind(address).map_err(fail)?;
        let shared = Arc::new(Shared::default());
        let (for_thread, accept) = (shared.clone(), listener.try_clone().map_err(fail)?);
        let accepting = std::thread::Builder::new()
            .name("kolo-store".into())
            .spawn(move || serve(&for_thread, &accept))
            .map_err(fail)?;
        Ok(Server { shared, listener, accepting: Some(accepting) })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits until every rank that came has left or the group has failed, at most `limit`.
    pub(crate) fn linger(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut state = lock(&self.shared.state);
        while state.failed.is_none() && !state.watches.is_empty() {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { return };
            let waited = self.shared.changed.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.shared.state);
            state.closing = true;
            // A connection that cannot be shut down is closed already.
            state.connections.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
            self.shared.changed.notify_all();
        }
        // On Linux this ends a blocked `accept`.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.accepting.take() {
            // It ends with an error only by a bug, which has been printed as a panic.
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Arc<Shared>, listener: &TcpListener) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        threads.retain(|thread| !thread.is_finished());
        let mut state = lock(&shared.state);
        if state.closing {
            break;
        }
        let Ok(copy) = stream.try_clone() else { continue };
        state.connections.push(copy);
        drop(state);
        let shared = shared.clone();
        let serve = move || connection(&shared, stream);
        threads.extend(std::thread::Builder::new().name("kolo-store-peer".into()).spawn(serve));
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

/// Serves one connection until it ends. What cannot be understood ends it.
fn connection(shared: &Shared, mut stream: TcpStream) {
    // Without it small answers wait for the peer's acknowledgement; losing it costs time only.
    let _ = stream.set_nodelay(true);
    while let Ok(request) = wire::read(&mut stream) {
        let reply = match request {
            Request::Set { key, value } => {
                lock(&shared.state).values.insert(key, value);
                shared.changed.notify_all();
                Reply::Kept
            }
            Request::Get { key, wait_ms } => Reply::Value(get(shared, &key, Duration::from_millis(wait_ms))),
            Request::Watch { rank } => return watch(shared, rank, stream),
            _ => return,
        };
        if wire::write(&mut stream, &reply).is_err() {
            return;
        }
    }
}

fn get(shared: &Shared, key: &str, wait: Duration) -> Option<String> {
    let until = Instant::now() + wait;
    let mut state = lock(&shared.state);
    loop {
        if let Some(value) = state.values.get(key) {
            return Some(value.clone());
        }
        let rest = until.checked_duration_since(Instant::now())?;
        if state.closing {
            return None;
        }
        state = shared.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Guards one rank's life.
fn watch(shared: &Shared, rank: Rank, mut stream: TcpStream) {
    {
        let mut state = lock(&shared.state);
        let Ok(mut copy) = stream.try_clone() else { return };
        if state.watches.contains_key(&rank) || state.left.contains(&rank) {
            let error = Error::Invalid(format!("two workers say they are {rank}; give each its own RANK"));
            let _ = wire::write(&mut copy, &Reply::Failed { error });
            return;
        }
        let news = state.failed.clone().map(|error| Reply::Failed { error });
        let left = state.left.iter().map(|&rank| Reply::Left { rank });
        for reply in std::iter::once(Reply::Watched).chain(news).chain(left) {
            // If it cannot be told, the loop below notices why.
            let _ = wire::write(&mut copy, &reply);
        }
        state.watches.insert(rank, copy);
    }
    let end = loop {
        match wire::read(&mut stream) {
            Ok(Request::Bye) => break None,
            Ok(Request::Failed { error }) => break Some(error),
            Ok(Request::Stalled { error }) => break Some(investigate(shared, rank, error)),
            Ok(Request::Waiting { on }) => {
                lock(&shared.state).waiting.insert(rank, on);
                shared.changed.notify_all();
            }
            _ => break Some(Error::Died { rank }),
        }
    };
    let mut state = lock(&shared.state);
    state.watches.remove(&rank);
    let news = match end {
        None => {
            state.left.insert(rank);
            Reply::Left { rank }
        }
        // Losing connections after a failure, or while closing, is what follows of itself.
        Some(_) if state.closing || state.failed.is_some() => return,
        Some(error) => {
            state.failed = Some(error.clone());
            Reply::Failed { error }
        }
    };
    // The sender of bad news may still be there and wait for the verdict.
    let _ = wire::write(&mut stream, &news);
    tell(&mut state, &news);
    shared.changed.notify_all();
}

fn tell(state: &mut State, news: &Reply) {
    for other in state.watches.values_mut() {
        // Whoever cannot be told is gone, too; its own thread notices.
        let _ = wire::write(other, news);
    }
}

/// A rank has waited too long for another, which may itself be waiting: asks all, and blames the one that is not.
fn investigate(shared: &Shared, reporter: Rank, error: Error) -> Error {
    let Error::Timeout { rank: blamed, during, waited } = error else { return error };
    let until = Instant::now() + PROBE_WAIT;
    let mut state = lock(&shared.state);
    // Several ranks may run out of patience at once; each report is an answer to the others' questions.
    if state.investigations == 0 {
        state.waiting.clear();
    }
    state.investigations += 1;
    state.waiting.insert(reporter, Some(blamed));
    shared.changed.notify_all();
    tell(&mut state, &Reply::Probe);
    while state.failed.is_none() && state.watches.keys().any(|rank| !state.waiting.contains_key(rank)) {
        let Some(rest) = until.checked_duration_since(Instant::now()) else { break };
        state = shared.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
    }
    state.investigations -= 1;
    let world = state.waiting.len() + 1;
    let rank = culprit(blamed, world, |rank| state.waiting.get(&rank).copied().flatten());
    Error::Timeout { rank, during, waited }
}

/// How long ranks may take to answer a probe. A stopped one never does.
const PROBE_WAIT: Duration = Duration::from_secs(1);
