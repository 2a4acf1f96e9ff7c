//! Waits for values. A value wakes only those waits that it completes: otherwise N ranks that wait for N
//! values each would be woken N times.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Condvar;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wanted<'a> {
    /// The value of a key.
    Key(&'a str),
    /// The values of `topic/0` to `topic/<count − 1>`.
    Topic(&'a str, usize),
}

/// All waits of a store's clients.
#[derive(Default)]
pub(super) struct Waits {
    keys: HashMap<String, Wait>,
    topics: HashMap<(String, usize), Wait>,
    /// Topics of current waits, with the counts that the waits need.
    counts: HashMap<String, Vec<usize>>,
}

/// Waits for the same values.
struct Wait {
    waiting: usize,
    /// Number of missing values; a lower bound if a topic has keys with unusual numbers.
    missing: usize,
    complete: Arc<Condvar>,
}

impl Waits {
    /// Begins a wait for values of which `missing` are missing. Returns the condition variable that ends it.
    pub(super) fn begin(&mut self, wanted: Wanted<'_>, missing: usize) -> Arc<Condvar> {
        let new = || Wait { waiting: 0, missing, complete: Arc::default() };
        let wait = match wanted {
            Wanted::Key(key) => self.keys.entry(key.into()).or_insert_with(new),
            Wanted::Topic(topic, count) => {
                let counts = self.counts.entry(topic.into()).or_default();
                if !counts.contains(&count) {
                    counts.push(count);
                }
                self.topics.entry((topic.into(), count)).or_insert_with(new)
            }
        };
        wait.waiting += 1;
        wait.missing = missing;
        wait.complete.clone()
    }

    pub(super) fn end(&mut self, wanted: Wanted<'_>) {
        let is_last = |wait: &mut Wait| {
            wait.waiting -= 1;
            wait.waiting == 0
        };
        match wanted {
            Wanted::Key(key) => {
                if self.keys.get_mut(key).is_some_and(is_last) {
                    self.keys.remove(key);
                }
            }
            Wanted::Topic(topic, count) => {
                let name = (topic.to_owned(), count);
                if !self.topics.get_mut(&name).is_some_and(is_last) {
                    return;
                }
                self.topics.remove(&name);
                let counts = self.counts.get_mut(topic);
                if counts.is_some_and(|counts| {
                    counts.retain(|other| *other != count);
                    counts.is_empty()
                }) {
                    self.counts.remove(topic);
                }
            }
        }
    }

    /// Records the first value of a key.
    pub(super) fn record(&mut self, key: &str) {
        if let Some(wait) = self.keys.get_mut(key) {
            wait.complete.notify_all();
        }
        let Some((topic, number)) = key.rsplit_once('/') else { return };
        let (Some(counts), Ok(number)) = (self.counts.get(topic), number.parse::<usize>()) else { return };
        for count in counts.iter().filter(|count| number < **count) {
            let Some(wait) = self.topics.get_mut(&(topic.to_owned(), *count)) else { continue };
            wait.missing = wait.missing.saturating_sub(1);
            if wait.missing == 0 {
                wait.complete.notify_all();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self, key: &str) -> usize {
        self.keys.get(key).map_or(0, |wait| wait.waiting)
    }

    /// Wakes all waits: no more values will come, or one could not be kept.
    pub(super) fn wake_all(&self) {
        for wait in self.keys.values().chain(self.topics.values()) {
            wait.complete.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_waits_leave_nothing() {
        let mut waits = Waits::default();
        let wanted = [Wanted::Key("a"), Wanted::Topic("a", 2), Wanted::Topic("a", 3), Wanted::Topic("a", 3)];
        wanted.iter().for_each(|wanted| drop(waits.begin(*wanted, 2)));
        waits.record("a");
        waits.record("a/1");
        assert_eq!((waits.topics[&("a".into(), 2)].missing, waits.topics[&("a".into(), 3)].missing), (1, 1));
        waits.record("a/2");
        assert_eq!((waits.topics[&("a".into(), 2)].missing, waits.topics[&("a".into(), 3)].missing), (1, 0));
        wanted.iter().for_each(|wanted| waits.end(*wanted));
        assert!(waits.keys.is_empty() && waits.topics.is_empty() && waits.counts.is_empty());
    }
}
