//! Declared work: a member marks work that uses no CPU time, so that it does not count as hung.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

static BUSY: Mutex<Busy> = Mutex::new(Busy { inside: 0, since: None, before: Duration::ZERO });

/// Work of this process while others wait for it, from [`working`] to the drop of this guard.
#[derive(Debug)]
#[must_use = "the worker counts as working as long as this lives"]
pub struct Working(());

/// Declares that this process works until the guard is dropped, even if it uses no CPU time: it uploads a
/// file, or waits for another system. In an elastic job, the other workers wait ten minutes for a worker
/// that works, and a few seconds for one that only waits (docs/elastic.md, "Workers that hang").
///
/// ```
/// let _working = kolo_elastic::working();
/// // Uploads a checkpoint.
/// ```
pub fn working() -> Working {
    BUSY.lock().begin(Instant::now());
    Working(())
}

impl Drop for Working {
    fn drop(&mut self) {
        BUSY.lock().end(Instant::now());
    }
}

/// Total time that this process has declared as work.
pub(crate) fn time_at_work() -> Duration {
    BUSY.lock().total(Instant::now())
}

/// The time during which at least one guard existed.
struct Busy {
    inside: usize,
    /// Time at which the first of them was created.
    since: Option<Instant>,
    /// Total time of earlier guards.
    before: Duration,
}

impl Busy {
    fn begin(&mut self, now: Instant) {
        self.inside += 1;
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant) {
        self.inside = self.inside.saturating_sub(1);
        if self.inside == 0 {
            self.before = self.total(now);
            self.since = None;
        }
    }

    fn total(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_once_however_many_guards_there_are() {
        let mut busy = Busy { inside: 0, since: None, before: Duration::ZERO };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        busy.begin(at(1));
        busy.begin(at(2));
        assert_eq!(busy.total(at(4)), Duration::from_secs(3));
        busy.end(at(5));
        busy.end(at(6));
        assert_eq!(busy.total(at(60)), Duration::from_secs(5));
        busy.begin(at(100));
        assert_eq!(busy.total(at(101)), Duration::from_secs(6));
    }
}
