//! The server of the store, on rank 0. Each connection has one thread; they are few, and mostly sleep.

mod awaited;
mod monitor;
mod state;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::wire::{self, Reply, Request};
use crate::error::Error;
use crate::secure::{Accepted, Access, Protocol, SecureListener, SecureStream};
use monitor::{monitor, send_to_all};
use state::{Shared, State, Will};

/// Maximum number of concurrent connections, besides [`CONNECTIONS_PER_RANK`].
const CONNECTIONS: usize = 64;
const CONNECTIONS_PER_RANK: usize = 16;

/// Time after which a client that does not read an answer loses its connection.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A running store, which ends on drop.
pub struct Server {
    shared: Arc<Shared>,
    /// Dropped last, after all connections of its threads have been shut down.
    listener: SecureListener,
}

kolo_schedule::opaque_debug!(Server { listener });

impl Server {
    /// Starts a store at `address` for a group of `world` ranks; port 0 selects a free port.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`] and [`Error::OtherHost`]: the operating system refuses. [`Error::System`]: it refuses
    /// a thread.
    /// [`Error::Environment`]: `address` is not loopback, but there is no token.
    pub fn start(address: SocketAddr, world: usize, access: &Access) -> Result<Server, Error> {
        access.may_listen(address.ip())?;
        let fail = |cause: io::Error| match address.ip().to_canonical().is_loopback() {
            _ if cause.kind() != io::ErrorKind::AddrNotAvailable => {
                Error::Listen { address, cause: cause.to_string() }
            }
            true => Error::LoopbackDown { address: address.ip() },
            false => Error::OtherHost { address },
        };
        let listener = TcpListener::bind(address).map_err(fail)?;
        let shared = Arc::new(Shared { world, ..Shared::default() });
        let for_listener = shared.clone();
        let serve = move |accepted| serve(&for_listener, accepted);
        let listener =
            SecureListener::start(listener, access, Protocol::Store, world, serve).map_err(|cause| {
                Error::system("cannot start a thread of the store (see `ulimit -u` and `ulimit -v`)", cause)
            })?;
        Ok(Server { shared, listener })
    }

    /// Returns the address of the store.
    ///
    /// # Errors
    ///
    /// The operating system does not return the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.address()
    }

    /// Returns the hosts that were refused because of their token, see [`SecureListener::token_refusals`].
    pub fn token_refusals(&self) -> Vec<IpAddr> {
        self.listener.token_refusals()
    }

    /// Returns for how long no connection could be served, and why, see
    /// [`SecureListener::without_threads`].
    pub fn without_threads(&self) -> Option<(Duration, String)> {
        self.listener.without_threads()
    }

    /// Sets a value, as a client's request would.
    ///
    /// # Errors
    ///
    /// Describes that the key is too long or the store full. Clients that wait for this value receive the
    /// error, too, until a later call sets it.
    pub fn set(&self, key: &str, value: String) -> Result<(), String> {
        let mut state = self.shared.state.lock();
        let kept = state.keep(key.into(), value);
        if let Err(why) = &kept {
            state.refuse(key, why.clone());
        }
        self.shared.changed.notify_all();
        kept
    }

    /// Removes a value, for instance a message that has been read.
    pub fn remove(&self, key: &str) {
        self.shared.state.lock().remove(key);
    }

    /// Removes all values whose keys begin with `prefix`, and returns them with the rest of their keys. If
    /// there are none, waits up to `wait` for the next change of the store or for [`Server::notify`].
    pub fn take(&self, prefix: &str, wait: Duration) -> Vec<(String, String)> {
        let mut state = self.shared.state.lock();
        let found = |state: &State| state.values.keys().any(|key| key.starts_with(prefix));
        if !found(&state) {
            self.shared.changed.wait_for(&mut state, wait);
        }
        let keys = state.values.keys().filter_map(|key| Some(key.strip_prefix(prefix)?.to_string()));
        let keys: Vec<String> = keys.collect();
        let take = |key: String| state.remove(&format!("{prefix}{key}")).map(|value| (key, value));
        keys.into_iter().filter_map(take).collect()
    }

    /// Ends a wait in [`Server::take`].
    pub fn notify(&self) {
        self.shared.changed.notify_all();
    }

    /// Reports a failure of the group to all ranks, including ranks that connect later.
    pub fn fail(&self, error: Error) {
        let mut state = self.shared.state.lock();
        if state.failed.is_none() {
            state.failed = Some(error.clone());
            send_to_all(&mut state, &Reply::Failed { error });
            self.shared.changed.notify_all();
        }
    }

    /// Waits until every connected rank has left or the group has failed, at most `limit`.
    pub fn linger(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut state = self.shared.state.lock();
        while state.failed.is_none() && !state.monitored.is_empty() {
            if self.shared.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closing = true;
        // A connection that cannot be shut down is closed already.
        state.connections.values().for_each(|stream| drop(stream.shutdown()));
        state.waits.wake_all();
        self.shared.changed.notify_all();
    }
}

/// Serves one connection until it ends.
fn serve(shared: &Shared, accepted: Accepted) {
    let Accepted { stream, session, .. } = accepted;
    // This fails only for a duration of zero.
    let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let stream = SecureStream::new(stream, session);
    let number = {
        let mut state = shared.state.lock();
        let most = CONNECTIONS.saturating_add(shared.world.saturating_mul(CONNECTIONS_PER_RANK));
        let full = state.connections.len() >= most;
        let (Ok(copy), false) = (stream.write_half(), state.closing || full) else { return };
        state.count += 1;
        let number = state.count;
        state.connections.insert(number, copy);
        number
    };
    let mut will = None;
    answer(shared, stream, &mut will);
    if let Some(will) = will {
        shared.state.lock().execute(will);
        shared.changed.notify_all();
    }
    shared.state.lock().connections.remove(&number);
}

/// Answers requests until the connection ends or sends an invalid request. `will` is the client's last will.
fn answer(shared: &Shared, mut stream: SecureStream, will: &mut Option<Will>) {
    while let Ok(request) = wire::read(&mut stream) {
        let reply = match request {
            Request::Set { key, value } => match shared.state.lock().keep(key, value) {
                Ok(()) => {
                    shared.changed.notify_all();
                    Reply::Kept
                }
                Err(why) => Reply::Refused { why },
            },
            Request::Get { key, wait_ms } => {
                let value = |state: &mut State| state.values.get(&key).cloned();
                found(shared.find(&key, value, Duration::from_millis(wait_ms)))
            }
            Request::Take { key, wait_ms } => {
                found(shared.find(&key, |state| state.remove(&key), Duration::from_millis(wait_ms)))
            }
            Request::Gather { topic, from, count, wait_ms } => {
                shared.gather(&topic, from, count, Duration::from_millis(wait_ms))
            }
            Request::Will { key, value } => match shared.state.lock().take_will(will, key, value) {
                Ok(()) => Reply::Kept,
                Err(why) => Reply::Refused { why },
            },
            Request::Monitor { rank } => return monitor(shared, rank, stream),
            _ => return,
        };
        if wire::write(&mut stream, &reply).is_err() {
            return;
        }
    }
}

fn found(value: Result<Option<String>, String>) -> Reply {
    value.map_or_else(|why| Reply::Refused { why }, Reply::Value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Gathered, Store};

    fn served() -> (Server, Store) {
        let access = Access::default();
        let server = Server::start("127.0.0.1:0".parse().unwrap(), 1, &access).unwrap();
        let store = Store::connect(server.address().unwrap(), &access, Duration::from_secs(20)).unwrap();
        (server, store)
    }

    #[test]
    fn taken_values_are_removed() {
        let (server, mut store) = served();
        server.set("to/1", "words".into()).unwrap();
        assert_eq!(store.get("to/1", Duration::ZERO).unwrap().as_deref(), Some("words"));
        assert_eq!(store.take("to/1", Duration::ZERO).unwrap().as_deref(), Some("words"));
        assert_eq!(store.take("to/1", Duration::ZERO).unwrap(), None);
        server.set("regroup/1", "1".into()).unwrap();
        server.remove("regroup/1");
        assert_eq!(store.get("regroup/1", Duration::ZERO).unwrap(), None);
        assert_eq!(server.shared.state.lock().kept, 0);
    }

    #[test]
    fn all_values_of_a_topic_come_by_a_few_requests() {
        const COUNT: usize = 1000;
        let (server, mut store) = served();
        let value = |number: usize| format!("{{\"rank\": {number}, {}}}", "\"".repeat(700));
        (0..COUNT - 1).for_each(|number| server.set(&format!("peer/{number}"), value(number)).unwrap());
        // Keys that continue after the number belong to other topics.
        server.set("peer/999/more", "1".into()).unwrap();
        let missing = store.gather("peer", COUNT, Duration::ZERO).unwrap();
        assert_eq!(missing, Gathered::Missing(vec![COUNT - 1]));
        std::thread::scope(|scope| {
            scope.spawn(|| server.set(&format!("peer/{}", COUNT - 1), value(COUNT - 1)).unwrap());
            let all = store.gather("peer", COUNT, Duration::from_secs(100)).unwrap();
            assert_eq!(all, Gathered::All((0..COUNT).map(value).collect()));
        });
        assert!(store.gather("peer", usize::MAX, Duration::ZERO).is_err(), "no memory is taken for it");
    }

    /// N values must not wake N ranks each.
    #[test]
    fn a_value_wakes_only_the_waits_that_it_completes() {
        let (server, _store) = served();
        let shared = server.shared.clone();
        let looked = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let find = |state: &mut State| {
                        looked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        state.values.get("own").cloned()
                    };
                    shared.find("own", find, Duration::from_secs(100)).unwrap()
                });
            }
            while shared.state.lock().waits.waiting("own") < 4 {
                std::thread::yield_now();
            }
            (0..50).for_each(|number| server.set(&format!("other/{number}"), "1".into()).unwrap());
            server.set("own", "1".into()).unwrap();
        });
        assert_eq!(looked.into_inner(), 4 + 4, "at first, and once more when it has come");
    }

    #[test]
    fn a_wait_for_a_value_that_a_full_store_refused_ends_with_an_error() {
        let (server, mut store) = served();
        store.will("will", "v".repeat(1000)).unwrap();
        let value = || "v".repeat(1 << 19);
        assert!((0..).any(|n| server.set(&n.to_string(), value()).is_err()));
        let full = server.set("reply", value()).unwrap_err();
        // A long wait, like a member's wait for the reply to its arrival.
        let error = store.get("reply", Duration::from_secs(3600)).unwrap_err();
        assert!(matches!(&error, crate::Error::StoreRefuses { cause, .. } if *cause == full), "{error}");
        assert!(store.set("another", "1".into()).is_ok(), "there may be room for less");
        assert_eq!(store.get("missing", Duration::ZERO).unwrap(), None, "it has not been refused");
        assert_eq!(store.take("0", Duration::ZERO).unwrap(), Some(value()));
        server.set("reply", value()).unwrap();
        assert_eq!(store.get("reply", Duration::ZERO).unwrap(), Some(value()));
    }
}
