//! The contents of the store, and their limits: without a token, every process of this host can connect.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::awaited::{Waits, Wanted};
use crate::error::Error;
use crate::secure::SecureStream;
use crate::store::wire::{self, Reply};
use kolo_schedule::Rank;

const MAX_KEY: usize = 1024;

/// Maximum number of bytes of keys and values.
const MAX_BYTES: usize = 64 << 20;

/// Bytes that an entry counts in addition to its key and value.
const ENTRY: usize = 64;

const MAX_GATHERED: usize = 1 << 20;

/// Maximum number of missing values that an answer names.
const MAX_NAMED: usize = 1 << 10;

/// Maximum wait for a value; clients repeat the request.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// State that all connections of a store share.
#[derive(Default)]
pub(super) struct Shared {
    pub world: usize,
    pub state: Mutex<State>,
    pub changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub values: HashMap<String, String>,
    /// Clients that wait for values.
    pub waits: Waits,
    /// Bytes of all values and last wills, as [`MAX_BYTES`] counts them.
    pub kept: usize,
    /// Keys of this process's values that could not be kept, and why. Clients may be waiting for them.
    refused: HashMap<String, String>,
    /// The connection that shows that a rank lives.
    pub monitored: HashMap<Rank, SecureStream>,
    /// Ranks that have left in good order.
    pub left: BTreeSet<Rank>,
    /// The group's failure.
    pub failed: Option<Error>,
    /// Answers to a probe.
    pub waiting: HashMap<Rank, Option<Rank>>,
    /// Number of current probes.
    pub investigations: usize,
    /// All connections, to shut them down at the end.
    pub connections: HashMap<u64, SecureStream>,
    /// Number of connections so far.
    pub count: u64,
    pub closing: bool,
}

impl State {
    /// Keeps a value, replacing an older one. The error is the reason for a refusal.
    pub fn keep(&mut self, key: String, value: String) -> Result<(), String> {
        let older = self.values.get(&key).map_or(0, |older| size(&key, older));
        self.reserve(&key, &value)?;
        self.kept -= older;
        self.refused.remove(&key);
        self.insert(key, value);
        Ok(())
    }

    fn insert(&mut self, key: String, value: String) {
        if !self.values.contains_key(&key) {
            self.waits.record(&key);
        }
        self.values.insert(key, value);
    }

    /// Reserves the room for a value. The error is the reason for a refusal.
    fn reserve(&mut self, key: &str, value: &str) -> Result<(), String> {
        if key.len() > MAX_KEY {
            return Err(format!("a key has {} bytes; the limit is {MAX_KEY}", key.len()));
        }
        if !wire::can_carry(value) {
            return Err(format!("no message can carry a value of {} bytes", value.len()));
        }
        let older = self.values.get(key).map_or(0, |older| size(key, older));
        let kept = self.kept + size(key, value);
        if kept - older > MAX_BYTES {
            return Err(format!("it would hold {} bytes; the limit is {MAX_BYTES}", kept - older));
        }
        self.kept = kept;
        Ok(())
    }

    /// Removes a value and returns it, if it was there.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let value = self.values.remove(key)?;
        self.kept -= size(key, &value);
        Some(value)
    }

    /// Sets a client's last will, replacing an older one. Its room is reserved at once, because no client is
    /// left to receive an error when the connection ends. The error is the reason for a refusal.
    pub fn take_will(&mut self, will: &mut Option<Will>, key: String, value: String) -> Result<(), String> {
        if let Some(older) = will.take() {
            self.kept -= size(&older.key, &older.value);
        }
        self.reserve(&key, &value)?;
        *will = Some(Will { key, value });
        Ok(())
    }

    /// Turns the last will of an ended connection into a value.
    pub fn execute(&mut self, will: Will) {
        let older = self.remove(&will.key);
        drop(older);
        self.insert(will.key, will.value);
    }

    /// Records that a value of this process could not be kept, and wakes all waits, of which some are for it.
    pub fn refuse(&mut self, key: &str, why: String) {
        self.refused.insert(key.into(), why);
        self.waits.wake_all();
    }

    /// Returns the reason why a wanted value could not be kept, if this process had one.
    fn refusal(&self, wanted: Wanted<'_>) -> Option<&String> {
        match wanted {
            _ if self.refused.is_empty() => None,
            Wanted::Key(key) => self.refused.get(key),
            Wanted::Topic(topic, count) => {
                self.missing(topic, count).find_map(|number| self.refused.get(&format!("{topic}/{number}")))
            }
        }
    }

    /// Returns the numbers of a topic that have no value.
    fn missing(&self, topic: &str, count: usize) -> impl Iterator<Item = usize> {
        (0..count).filter(move |number| !self.values.contains_key(&format!("{topic}/{number}")))
    }

    /// Returns the values of a topic from number `from` on, as many as one message can carry.
    fn gathered(&self, topic: &str, from: usize, count: usize) -> Vec<String> {
        let values = || (from..count).filter_map(|number| self.values.get(&format!("{topic}/{number}")));
        values().take(wire::carried(values())).cloned().collect()
    }
}

/// A value that the store sets when a client's connection ends.
pub(super) struct Will {
    key: String,
    value: String,
}

/// Returns the bytes that an entry counts.
fn size(key: &str, value: &str) -> usize {
    key.len() + value.len() + ENTRY
}

impl Shared {
    /// Waits until `find` returns a value for a key; `None` after `wait`. An error means that this process
    /// had the value and could not keep it.
    pub fn find(
        &self,
        key: &str,
        find: impl Fn(&mut State) -> Option<String>,
        wait: Duration,
    ) -> Result<Option<String>, String> {
        self.wait_for(Wanted::Key(key), |state| find(state).ok_or(1), wait).map(Result::ok)
    }

    /// Waits for all values of a topic. Returns those from `from` on, or the missing ones after `wait`.
    pub fn gather(&self, topic: &str, from: usize, count: usize, wait: Duration) -> Reply {
        if count > MAX_GATHERED || from >= count {
            let why =
                format!("a rank asks for values {from} to {count} of a topic; the limit is {MAX_GATHERED}");
            return Reply::Refused { why };
        }
        let find = |state: &mut State| match state.missing(topic, count).count() {
            0 => Ok(Reply::Values(state.gathered(topic, from, count))),
            missing => Err(missing),
        };
        match self.wait_for(Wanted::Topic(topic, count), find, wait) {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => {
                Reply::Absent { missing: self.state.lock().missing(topic, count).take(MAX_NAMED).collect() }
            }
            Err(why) => Reply::Refused { why },
        }
    }

    /// Waits until `find` returns a result; until then it returns the number of missing values. After `wait`
    /// returns that number. The error is about a value that could not be kept.
    fn wait_for<T>(
        &self,
        wanted: Wanted<'_>,
        find: impl Fn(&mut State) -> Result<T, usize>,
        wait: Duration,
    ) -> Result<Result<T, usize>, String> {
        let until = Instant::now() + wait.min(MAX_WAIT);
        let mut state = self.state.lock();
        loop {
            let missing = match find(&mut state) {
                Err(missing) => missing,
                found => return Ok(found),
            };
            if let Some(why) = state.refusal(wanted) {
                return Err(why.clone());
            }
            if state.closing || Instant::now() >= until {
                return Ok(Err(missing));
            }
            let complete = state.waits.begin(wanted, missing);
            complete.wait_until(&mut state, until);
            state.waits.end(wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_is_bounded() {
        let mut state = State::default();
        state.keep("key".into(), "value".into()).unwrap();
        let once = state.kept;
        state.keep("key".into(), "other".into()).unwrap();
        assert_eq!(state.kept, once, "in place of the older one");
        assert!(state.keep("k".repeat(MAX_KEY + 1), String::new()).unwrap_err().contains("key"));
        assert_eq!(state.remove("key").as_deref(), Some("other"));
        assert_eq!((state.kept, state.remove("key")), (0, None));
        assert!(state.keep("long".into(), "v".repeat(1 << 20)).unwrap_err().contains("no message"));
        const LEN: usize = 1_000_000;
        let mut will = None;
        state.take_will(&mut will, "will".into(), "v".repeat(LEN)).unwrap();
        let mut full = (0..).map(|n| state.keep(n.to_string(), "v".repeat(LEN)));
        assert!(full.by_ref().take(MAX_BYTES / LEN).any(|kept| kept.is_err()));
        // There is room for it, because the will reserved it.
        let kept = state.kept;
        state.execute(will.take().unwrap());
        assert_eq!((state.kept, state.values["will"].len()), (kept, LEN));
        assert!(state.take_will(&mut will, "another".into(), "v".repeat(LEN)).is_err());
        assert!(will.is_none());
    }

    #[test]
    fn only_waits_for_a_lost_value_fail() {
        let shared = Shared::default();
        let get = |key: &str| {
            let value = |state: &mut State| state.values.get(key).cloned();
            shared.find(key, value, Duration::ZERO)
        };
        let gather = |topic: &str| shared.gather(topic, 0, 2, Duration::ZERO);
        shared.state.lock().refuse("topic/1", "full".into());
        assert_eq!((get("topic/1"), get("topic/2")), (Err("full".into()), Ok(None)));
        assert!(matches!(gather("topic"), Reply::Refused { .. }));
        assert!(matches!(gather("other"), Reply::Absent { .. }));
        shared.state.lock().keep("topic/1".into(), "value".into()).unwrap();
        assert_eq!(get("topic/1"), Ok(Some("value".into())));
        assert!(matches!(gather("topic"), Reply::Absent { .. }));
    }
}
