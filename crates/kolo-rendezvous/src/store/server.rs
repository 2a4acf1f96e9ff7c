//! The store's serving side, on rank 0. One thread for each connection; they are few and they sleep.
//!
//! Who comes through the [`Door`] is heard; what it can make us keep is bounded all the same, because without a
//! token every process of this host can come.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::wire::{self, Reply, Request};
use crate::error::Error;
use crate::liveness::{culprit, lock};
use crate::secure::{Access, Door, Link, Purpose, Visitor};
use kolo_schedule::Rank;

/// Most connections at once, besides [`EACH`] for every rank.
const CONNECTIONS: usize = 64;
const EACH: usize = 16;

/// Longest key.
const LONGEST_KEY: usize = 1024;

/// Most bytes of keys and values.
const MOST_BYTES: usize = 64 << 20;

/// What an entry counts besides its bytes.
const ENTRY: usize = 64;

/// Longest wait for a value; clients ask again.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// A client that does not take an answer for this long is not served any more.
const UNREAD: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    values: HashMap<String, String>,
    /// Bytes of all values, as [`MOST_BYTES`] counts them.
    kept: usize,
    watches: HashMap<Rank, Link>,
    left: BTreeSet<Rank>,
    failed: Option<Error>,
    /// Answers to a probe.
    waiting: HashMap<Rank, Option<Rank>>,
    /// Probes that are going on.
    investigations: usize,
    /// Every connection, to be shut down at the end.
    connections: HashMap<u64, Link>,
    /// Connections so far.
    count: u64,
    closing: bool,
}

#[derive(Default)]
struct Shared {
    world: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// A running store. Ends on drop.
pub struct Server {
    shared: Arc<Shared>,
    /// Dropped last, when all that its threads serve has been shut down.
    door: Door,
}

impl Server {
    /// Listens at `address`, for a group of `world` ranks; port 0 takes a free one.
    pub fn start(address: SocketAddr, world: usize, access: &Access) -> Result<Server, Error> {
        access.may_listen(address.ip())?;
        let fail = |cause: io::Error| Error::Listen { address, cause: cause.to_string() };
        let listener = TcpListener::bind(address).map_err(fail)?;
        let shared = Arc::new(Shared { world, ..Shared::default() });
        let for_door = shared.clone();
        let serve = move |visitor| serve(&for_door, visitor);
        let door = Door::open(listener, access, Purpose::Store, world, serve).map_err(fail)?;
        Ok(Server { shared, door })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.door.address()
    }

    /// Keeps a value, as if a client had asked for it. Says why not.
    pub fn set(&self, key: &str, value: String) -> Result<(), String> {
        lock(&self.shared.state).keep(key.into(), value)?;
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Takes all values out whose keys begin with `prefix`, with what follows it in their keys. Waits for the next event if
    /// there are none, at most `wait`.
    pub fn take(&self, prefix: &str, wait: Duration) -> Vec<(String, String)> {
        let mut state = lock(&self.shared.state);
        let found = |state: &State| state.values.keys().any(|key| key.starts_with(prefix));
        if !found(&state) {
            state = self.shared.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        let keys = state.values.keys().filter_map(|key| Some(key.strip_prefix(prefix)?.to_string()));
        let keys: Vec<String> = keys.collect();
        let mut taken = Vec::new();
        for key in keys {
            let whole = format!("{prefix}{key}");
            if let Some(value) = state.values.remove(&whole) {
                state.kept -= whole.len() + value.len() + ENTRY;
                taken.push((key, value));
            }
        }
        taken
    }

    /// Ends a wait in [`Server::take`].
    pub fn notify(&self) {
        self.shared.changed.notify_all();
    }

    /// The group has failed: all its ranks are told, also those that come later.
    pub fn fail(&self, error: Error) {
        let mut state = lock(&self.shared.state);
        if state.failed.is_none() {
            state.failed = Some(error.clone());
            tell(&mut state, &Reply::Failed { error });
            self.shared.changed.notify_all();
        }
    }

    /// Waits until every rank that came has left or the group has failed, at most `limit`.
    pub fn linger(&self, limit: Duration) {
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
        let mut state = lock(&self.shared.state);
        state.closing = true;
        // A connection that cannot be shut down is closed already.
        state.connections.values().for_each(|stream| drop(stream.shutdown()));
        self.shared.changed.notify_all();
    }
}

/// Serves one connection until it ends.
fn serve(shared: &Shared, visitor: Visitor) {
    let Visitor { stream, session, .. } = visitor;
    // It fails only on a duration of zero.
    let _ = stream.set_write_timeout(Some(UNREAD));
    let stream = Link::new(stream, session);
    let number = {
        let mut state = lock(&shared.state);
        let full = state.connections.len() >= CONNECTIONS.saturating_add(shared.world.saturating_mul(EACH));
        let (Ok(copy), false) = (stream.mouth(), state.closing || full) else { return };
        state.count += 1;
        let number = state.count;
        state.connections.insert(number, copy);
        number
    };
    connection(shared, stream);
    lock(&shared.state).connections.remove(&number);
}

/// Serves one connection, and heeds the last will of whoever was there.
fn connection(shared: &Shared, stream: Link) {
    let mut will = None;
    answer(shared, stream, &mut will);
    if let Some((key, value)) = will {
        if let Err(why) = lock(&shared.state).keep(key, value) {
            log::warn!("a last will is not kept: {why}");
        }
        shared.changed.notify_all();
    }
}

/// What cannot be understood ends the connection.
fn answer(shared: &Shared, mut stream: Link, will: &mut Option<(String, String)>) {
    while let Ok(request) = wire::read(&mut stream) {
        let reply = match request {
            Request::Set { key, value } => match lock(&shared.state).keep(key, value) {
                Ok(()) => {
                    shared.changed.notify_all();
                    Reply::Kept
                }
                Err(why) => Reply::Refused { why },
            },
            Request::Get { key, wait_ms } => Reply::Value(get(shared, &key, Duration::from_millis(wait_ms))),
            Request::Will { key, value } => {
                *will = Some((key, value));
                Reply::Kept
            }
            Request::Watch { rank } => return watch(shared, rank, stream),
            _ => return,
        };
        if wire::write(&mut stream, &reply).is_err() {
            return;
        }
    }
}

impl State {
    /// Keeps a value, in place of an older one. Says why not.
    fn keep(&mut self, key: String, value: String) -> Result<(), String> {
        if key.len() > LONGEST_KEY {
            return Err(format!("a key of {} bytes, where {LONGEST_KEY} are the most", key.len()));
        }
        let size = |value: &String| key.len() + value.len() + ENTRY;
        let kept = self.kept - self.values.get(&key).map_or(0, size) + size(&value);
        if kept > MOST_BYTES {
            return Err(format!("it would hold {kept} bytes, where {MOST_BYTES} are the most"));
        }
        self.kept = kept;
        self.values.insert(key, value);
        Ok(())
    }
}

fn get(shared: &Shared, key: &str, wait: Duration) -> Option<String> {
    let until = Instant::now() + wait.min(LONGEST_WAIT);
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
fn watch(shared: &Shared, rank: Rank, mut stream: Link) {
    {
        let mut state = lock(&shared.state);
        let Ok(mut copy) = stream.mouth() else { return };
        if rank.0 >= shared.world {
            let world = shared.world;
            let problem = format!("there is no {rank} among {world}; give all workers the same WORLD_SIZE");
            let _ = wire::write(&mut copy, &Reply::Failed { error: Error::Invalid(problem) });
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let mut state = State::default();
        state.keep("key".into(), "value".into()).unwrap();
        let once = state.kept;
        state.keep("key".into(), "other".into()).unwrap();
        assert_eq!(state.kept, once, "in place of the older one");
        assert!(state.keep("k".repeat(LONGEST_KEY + 1), String::new()).unwrap_err().contains("key"));
        let mut full = (0..).map(|n| state.keep(n.to_string(), "v".repeat(1 << 20)));
        assert!(full.by_ref().take(65).any(|kept| kept.is_err()));
    }
}
