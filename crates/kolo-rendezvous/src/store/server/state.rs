//! What the store keeps, and its bounds: without a token every process of this host can connect.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;
use crate::secure::SecureStream;
use kolo_schedule::Rank;

/// Bytes of the longest key.
const MAX_KEY: usize = 1024;

/// Most bytes of keys and values.
const MAX_BYTES: usize = 64 << 20;

/// What an entry counts besides its bytes.
pub(super) const ENTRY: usize = 64;

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
    /// Bytes of all values, as [`MAX_BYTES`] counts them.
    pub kept: usize,
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
        if key.len() > MAX_KEY {
            return Err(format!("a key of {} bytes, where {MAX_KEY} are the most", key.len()));
        }
        let size = |value: &String| key.len() + value.len() + ENTRY;
        let kept = self.kept - self.values.get(&key).map_or(0, size) + size(&value);
        if kept > MAX_BYTES {
            return Err(format!("it would hold {kept} bytes, where {MAX_BYTES} are the most"));
        }
        self.kept = kept;
        self.values.insert(key, value);
        Ok(())
    }
}

impl Shared {
    /// The value of a key, as soon as it is there; `None` after `wait`.
    pub fn get(&self, key: &str, wait: Duration) -> Option<String> {
        let until = Instant::now() + wait.min(MAX_WAIT);
        let mut state = self.state.lock();
        loop {
            if let Some(value) = state.values.get(key) {
                return Some(value.clone());
            }
            if state.closing || self.changed.wait_until(&mut state, until).timed_out() {
                return state.values.get(key).cloned();
            }
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
        let mut full = (0..).map(|n| state.keep(n.to_string(), "v".repeat(1 << 20)));
        assert!(full.by_ref().take(65).any(|kept| kept.is_err()));
    }
}
