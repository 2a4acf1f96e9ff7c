//! Workers of one host share its cores: for their computation, and for what sockets cost.

use serde::{Deserialize, Serialize};

/// Seconds that each further worker on the fullest core costs in a step: four of Linux's time slices, which
/// are of 1.4 ms on two cores. Set on 3 to 8 workers there, whose steps alone take 5 to 6 ms
/// (docs/foresight.md).
const TURN_SECONDS: f64 = 5.6e-3;

/// The cores of a host, and the workers on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cores {
    /// Cores that workers compute on, one each.
    pub count: f64,
    /// Workers of the fullest host.
    pub workers: f64,
    /// How many times as long a worker computes when all cores compute as when it is alone: they share memory
    /// and caches.
    pub full_slowdown: f64,
}

impl Cores {
    /// How many times as long a worker computes as alone on the host: with more workers than cores they take
    /// turns, with fewer the slowdown of a full host grows with each of them.
    pub fn slowdown(&self) -> f64 {
        let others = (self.workers.min(self.count) - 1.0).max(0.0);
        let full = if self.count > 1.0 { others / (self.count - 1.0) } else { 0.0 };
        self.crowding() * (1.0 + (self.full_slowdown - 1.0) * full)
    }

    /// Seconds of a step in which workers that take turns on a core wait for theirs because of each other:
    /// who gets a message has its turn after those that compute. With 3 on 2 cores, one has 2.
    pub fn waiting(&self) -> f64 {
        TURN_SECONDS * (self.crowding().ceil() - 1.0)
    }

    /// Workers for each core, at least 1.
    pub fn crowding(&self) -> f64 {
        (self.workers / self.count).max(1.0)
    }

    /// The share of a worker's communication that takes time from computation, because no core is free for
    /// it.
    pub fn contended(&self) -> f64 {
        let free = (self.count - self.workers).max(0.0) / self.workers.max(1.0);
        1.0 - free.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_beyond_the_cores_take_turns() {
        let of = |workers: f64| Cores { count: 4.0, workers, full_slowdown: 1.3 };
        let slowdowns = [1.0, 2.0, 4.0, 8.0].map(|workers| of(workers).slowdown());
        let expected = [1.0, 1.1, 1.3, 2.0 * 1.3];
        assert!(slowdowns.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{slowdowns:?}");
        assert_eq!(
            [4.0, 6.0, 8.0, 12.0].map(|workers| of(workers).waiting() / TURN_SECONDS),
            [0.0, 1.0, 1.0, 2.0]
        );
        let contended = [1.0, 2.0, 3.0, 4.0, 8.0].map(|workers| of(workers).contended());
        assert_eq!(contended, [0.0, 0.0, 1.0 - 1.0 / 3.0, 1.0, 1.0]);
        let one = Cores { count: 1.0, workers: 1.0, full_slowdown: 1.0 };
        assert_eq!((one.slowdown(), one.contended()), (1.0, 1.0));
    }
}
