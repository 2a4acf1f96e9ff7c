//! Models how the workers of one host share its cores, for computation and for sockets.

use serde::{Deserialize, Serialize};

/// Seconds per step that each further worker on the fullest core costs: four of Linux's time slices, which
/// last 1.4 ms on two cores. Fitted to 3 to 8 workers therewith steps of 5 to 6 ms (docs/notes/foresight.md).
const TURN_SECONDS: f64 = 5.6e-3;

/// Cores of a host, and the workers on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cores {
    /// Number of cores that workers compute on, one each.
    pub count: f64,
    /// Number of workers on the fullest host.
    pub workers: f64,
    /// Ratio of a worker's time when all cores compute to its time alone: workers share memory and caches.
    pub full_slowdown: f64,
}

impl Cores {
    /// Returns the ratio of a worker's computing time to its time alone on the host. With more workers than
    /// cores they take turns; with fewer, the slowdown grows linearly with their number.
    pub fn slowdown(&self) -> f64 {
        let others = (self.workers.min(self.count) - 1.0).max(0.0);
        let full = if self.count > 1.0 { others / (self.count - 1.0) } else { 0.0 };
        self.crowding() * (1.0 + (self.full_slowdown - 1.0) * full)
    }

    /// Returns the seconds per step that workers sharing a core wait for each other: a worker that receives a
    /// message gets its turn after those that compute. With 3 workers on 2 cores, one core has 2.
    pub fn waiting(&self) -> f64 {
        TURN_SECONDS * (self.crowding().ceil() - 1.0)
    }

    /// Returns the number of workers per core, at least 1.
    pub fn crowding(&self) -> f64 {
        (self.workers / self.count).max(1.0)
    }

    /// Returns the share of a worker's communication that delays computation for lack of a free core.
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
