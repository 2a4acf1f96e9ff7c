//! What the store keeps, and its bounds: without a token every process of this host can connect.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::awaited::{Waits, Wanted};
use crate::error::Error;
use crate::secure::SecureStream;
use crate::store::wire::{self, Reply};
use kolo_schedule::Rank;

/// Bytes of the longest key.
const MAX_KEY: usize = 1024;

/// Most bytes of keys and values.
const MAX_BYTES: usize = 64 << 20;

/// What an entry counts besides its bytes.
const ENTRY: usize = 64;

/// Most values of a topic.
const MAX_GATHERED: usize = 1 << 20;

/// Most missing values that an answer names.
const MAX_NAMED: usize = 1 << 10;

/// Longest wait for a value; clients ask again.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// What all connections of a store share.
#[derive(Default)]
pub(super) struct Shared {
    pub world: usize,
    pub state: Mutex<State>,
    pub changed: Condvar,
}

/// What the store knows.
#[derive(Default)]
pub(super) struct State {
    pub values: HashMap<String, String>,
    /// Clients that wait for values.
    pub waits: Waits,
    /// Bytes of all values and last wills, as [`MAX_BYTES`] counts them.
    pub kept: usize,
    /// Why a value of this process's own could not be kept. Whoever waits for a value may wait for that one.
    pub refused: Option<String>,
    /// The connection that stands for each rank's life.
    pub monitored: HashMap<Rank, SecureStream>,
    /// Ranks that have left in good order.
    pub left: BTreeSet<Rank>,
    /// The group's failure.
    pub failed: Option<Error>,
    /// Answers to a probe.
    pub waiting: HashMap<Rank, Option<Rank>>,
    /// Probes that are going on.
    pub investigations: usize,
    /// Every connection, to be shut down at the end.
    pub connections: HashMap<u64, SecureStream>,
    /// Connections so far.
    pub count: u64,
    pub closing: bool,
}

impl State {
    /// Keeps a value, in place of an older one. Says why not.
    pub fn keep(&mut self, key: String, value: String) -> Result<(), String> {
        let older = self.values.get(&key).map_or(0, |older| size(&key, older));
        self.reserve(&key, &value)?;
        self.kept -= older;
        self.insert(key, value);
        Ok(())
    }

    fn insert(&mut self, key: String, value: String) {
        if !self.values.contains_key(&key) {
            self.waits.came(&key);
        }
        self.values.insert(key, value);
    }

    /// Makes sure of the room that a value will take. Says why not.
    fn reserve(&mut self, key: &str, value: &str) -> Result<(), String> {
        if key.len() > MAX_KEY {
            return Err(format!("a key of {} bytes, where {MAX_KEY} are the most", key.len()));
        }
        if !wire::can_carry(value) {
            return Err(format!("no message can carry a value of {} bytes", value.len()));
        }
        let older = self.values.get(key).map_or(0, |older| size(key, older));
        let kept = self.kept + size(key, value);
        if kept - older > MAX_BYTES {
            return Err(format!("it would hold {} bytes, where {MAX_BYTES} are the most", kept - older));
        }
        self.kept = kept;
        Ok(())
    }

    /// Keeps a value no longer. Gives it, if it was there.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let value = self.values.remove(key)?;
        self.kept -= size(key, &value);
        Some(value)
    }

    /// Takes a client's last will, in place of an older one. Its room is taken at once: when the connection
    /// ends nobody could be told that there is none. Says why not.
    pub fn take_will(&mut self, will: &mut Option<Will>, key: String, value: String) -> Result<(), String> {
        if let Some(older) = will.take() {
            self.kept -= size(&older.key, &older.value);
        }
        self.reserve(&key, &value)?;
        *will = Some(Will { key, value });
        Ok(())
    }

    /// A connection has ended: its last will becomes a value.
    pub fn execute(&mut self, will: Will) {
        let older = self.remove(&will.key);
        drop(older);
        self.insert(will.key, will.value);
    }

    /// A value of this process's own could not be kept: whoever waits may wait for that one.
    pub fn refuse(&mut self, why: String) {
        self.refused = Some(why);
        self.waits.wake_all();
    }

    /// The numbers of a topic that have no value.
    fn missing(&self, topic: &str, count: usize) -> impl Iterator<Item = usize> {
        (0..count).filter(move |number| !self.values.contains_key(&format!("{topic}/{number}")))
    }

    /// The values of a topic from a number on, as many as a message carries.
    fn gathered(&self, topic: &str, from: usize, count: usize) -> Vec<String> {
        let values = || (from..count).filter_map(|number| self.values.get(&format!("{topic}/{number}")));
        values().take(wire::carried(values())).cloned().collect()
    }
}

/// What a client wants to be kept when its connection has ended.
pub(super) struct Will {
    key: String,
    value: String,
}

/// What an entry counts.
fn size(key: &str, value: &str) -> usize {
    key.len() + value.len() + ENTRY
}

impl Shared {
    /// What `find` gives of a key, as soon as that is something; `None` after `wait`. An error says that a
    /// value could not be kept, which may be this one.
    pub fn find(
        &self,
        key: &str,
        find: impl Fn(&mut State) -> Option<String>,
        wait: Duration,
    ) -> Result<Option<String>, String> {
        self.wait_for(Wanted::Key(key), |state| find(state).ok_or(1), wait).map(Result::ok)
    }

    /// The values of a topic from a number on, as soon as all are there; after `wait` those that are missing.
    pub fn gather(&self, topic: &str, from: usize, count: usize, wait: Duration) -> Reply {
        if count > MAX_GATHERED || from >= count {
            let why = format!("values {from} to {count} of a topic, where {MAX_GATHERED} are the most");
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

    /// What `find` gives, as soon as that is something; after `wait` how many values are missing, which it
    /// gives until then. The error is a value that could not be kept.
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
            if let Some(why) = &state.refused {
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
    fn what_is_kept_is_bounded() {
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
        // There is room for it, because it was taken in time.
        let kept = state.kept;
        state.execute(will.take().unwrap());
        assert_eq!((state.kept, state.values["will"].len()), (kept, LEN));
        assert!(state.take_will(&mut will, "another".into(), "v".repeat(LEN)).is_err());
        assert!(will.is_none());
    }
}
