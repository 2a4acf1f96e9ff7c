//! What a member does that takes no CPU time and is no hang: it says so.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

static BUSY: Mutex<Busy> = Mutex::new(Busy { inside: 0, since: None, before: Duration::ZERO });

/// Something that a worker does while the others wait for it, from [`working`] to its drop.
#[must_use = "the worker counts as working as long as this lives"]
pub struct Working(());

/// Says that this process works until the guard is dropped, though it may take no CPU time: it uploads a
/// file, or waits for an answer from elsewhere. In an elastic job the others wait ten minutes for a worker
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

/// For how long this process has said that it works.
pub(crate) fn time_at_work() -> Duration {
    BUSY.lock().total(Instant::now())
}

/// The time in which at least one guard was there.
struct Busy {
    /// Guards that are there.
    inside: usize,
    /// Since when.
    since: Option<Instant>,
    /// The time of those that were.
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
