//! A network converts a cost into seconds.
//!
//! T = messages·α + handled·h + bytes·β + added·γ. This is Thakur, Rabenseifner & Gropp 2005, section 2, with
//! the overhead of a message (o in Culler et al. 1993, "LogP") separate from its latency, because it
//! dominates on sockets.

use serde::{Deserialize, Serialize};

use crate::cost::{Cost, Traffic};
use crate::topology::Topology;

/// Maximum message length between ranks that share memory, in bytes. Small enough that receivers fetch
/// results from the cache, large enough that a message's handling does not matter.
const LONGEST_NEAR: usize = 512 * 1024;
/// Lower and upper bound of the maximum message length over sockets, in bytes. Twice the lower bound takes
/// up to twice as long where the kernel's copies and the addition then miss the second-level cache.
const LONGEST_FAR: (usize, usize) = (128 * 1024, 512 * 1024);
/// Transfer time of the longest message over sockets, in seconds, within these bounds. Additions while the
/// link is idle take a small part of this time, and so does the handling of a message.
const LONGEST_SECONDS: f64 = 1e-4;

/// Points (bytes, seconds), at least one, ascending in bytes. No straight line: caches serve short messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve(pub Vec<(f64, f64)>);

impl Curve {
    /// Builds a curve from measurements, at least one. Other load on a machine only ever slows it down, so
    /// a length is assumed to take no longer than any longer one. The first measurement is often too slow
    /// because some ranks are still starting.
    pub fn measured(mut points: Vec<(f64, f64)>) -> Self {
        for shorter in (1..points.len()).rev() {
            points[shorter - 1].1 = points[shorter - 1].1.min(points[shorter].1);
        }
        Curve(points)
    }

    /// Returns the seconds for this many bytes, by linear interpolation, beyond the last point extrapolation.
    pub fn seconds(&self, bytes: f64) -> f64 {
        let points = &self.0;
        let above = points.iter().position(|(length, _)| *length >= bytes).unwrap_or(points.len() - 1);
        let (x0, y0) = points[above.max(1) - 1];
        let (x1, y1) = points[above.max(1).min(points.len() - 1)];
        if bytes <= points[0].0 || x1 <= x0 {
            return points[0].1;
        }
        y0 + (bytes - x0) * (y1 - y0) / (x1 - x0)
    }

    /// Returns the seconds that the bytes take, without the time of the shortest message.
    fn beyond_first(&self, bytes: f64) -> f64 {
        self.seconds(bytes) - self.0[0].1
    }
}

/// Costs of one kind of link when all ranks use it at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Seconds until a collective is under way: ranks do not begin at the same moment.
    pub start: f64,
    /// Seconds from the start of the shortest message to its arrival, without its handling at both ends: α.
    pub latency: f64,
    /// Seconds of a rank's time for each message that it sends or receives: h.
    pub per_message: f64,
    /// Time by bytes when every rank both sends and receives that many.
    pub exchange: Curve,
    /// Time by bytes when half of the ranks send and the other half receive.
    pub one_way: Curve,
}

impl Link {
    /// Creates a link from a latency in seconds (α) and seconds per byte (β).
    pub fn new(latency: f64, per_byte: f64) -> Self {
        const FAR: f64 = 1e6;
        let curve = Curve(vec![(0.0, latency), (FAR, latency + FAR * per_byte)]);
        Link { start: 0.0, latency, per_message: 0.0, exchange: curve.clone(), one_way: curve }
    }

    /// Returns the seconds for some traffic; `bytes` converts its elements.
    fn seconds(&self, traffic: &Traffic, crowding: f64, bytes: impl Fn(f64) -> f64) -> f64 {
        if traffic.handled == 0.0 {
            return 0.0;
        }
        let messages = self.start + traffic.messages * self.latency + traffic.handled * self.per_message;
        let slowed = traffic.busy.max(1.0 / crowding);
        let (exchanged, one_way) = (bytes(traffic.exchanged), slowed * bytes(traffic.one_way));
        messages + self.exchange.beyond_first(exchanged) + self.one_way.beyond_first(one_way)
    }
}

/// Measurements of a group when it formed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Link between ranks that share memory.
    pub near: Link,
    /// Link between nodes.
    pub far: Link,
    /// Number of ranks that shared one link between nodes when `far` was measured.
    pub sharing: f64,
    /// Time for one rank to add this many bytes to others.
    pub add: Curve,
    /// Ranks per core of a host, at least 1. Above 1, idle ranks leave their core to others.
    pub crowding: f64,
}

impl Network {
    /// Returns the maximum message length of a collective, in bytes. All ranks must cut alike, including
    /// ranks that share memory with no other.
    pub fn longest_message(&self, topology: &Topology) -> usize {
        if topology.nodes().len() == 1 {
            return LONGEST_NEAR;
        }
        let (least, most) = LONGEST_FAR;
        let seconds = |bytes: usize| self.far.exchange.beyond_first(bytes as f64);
        let halvings = std::iter::successors(Some(most), |bytes| Some(bytes / 2));
        let mut longer = halvings.take_while(|bytes| *bytes > least);
        longer.find(|bytes| seconds(*bytes) <= LONGEST_SECONDS).unwrap_or(least)
    }

    /// Returns the seconds that `cost` takes when an element has `size` bytes.
    pub fn seconds(&self, cost: &Cost, size: usize) -> f64 {
        let size = size as f64;
        let moved = cost.near.exchanged + cost.near.one_way;
        let copied = if moved > 0.0 { 1.0 - cost.near.read_in_place / moved } else { 0.0 };
        let near = self.near.seconds(&cost.near, self.crowding, |elements| elements * size * copied);
        let far = self.far.seconds(&cost.far, self.crowding, |elements| elements * size / self.sharing);
        near + far + self.crowding * self.add.seconds(cost.added * size)
    }
}

impl Default for Network {
    /// Shared memory, and 10 Gbit/s between nodes. Used until the links have been measured.
    fn default() -> Self {
        let (near, far) = (Link::new(5e-7, 5e-11), Link::new(3e-5, 8e-10));
        let add = Curve(vec![(0.0, 0.0), (1e6, 1e6 * 5e-11)]);
        Network { near, far, sharing: 1.0, add, crowding: 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_straight_between_measurements() {
        let curve = Curve(vec![(4.0, 1.0), (100.0, 2.0), (200.0, 6.0)]);
        let seconds = [0.0, 4.0, 52.0, 100.0, 150.0, 200.0, 300.0].map(|bytes| curve.seconds(bytes));
        assert_eq!(seconds, [1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 10.0]);
        assert_eq!(Curve(vec![(4.0, 1.0)]).seconds(100.0), 1.0);
    }

    #[test]
    fn a_length_measured_too_slowly_takes_no_longer_than_the_longer_ones() {
        let curve =
            Curve::measured(vec![(4.0, 157.0), (100.0, 0.5), (200.0, 2.0), (300.0, 1.5), (400.0, 9.0)]);
        assert_eq!(curve.0, [(4.0, 0.5), (100.0, 0.5), (200.0, 1.5), (300.0, 1.5), (400.0, 9.0)]);
    }

    #[test]
    fn messages_are_longer_on_quicker_links() {
        let (one, two) = (Topology::single(2), Topology::separate(2));
        let on = |gigabytes: f64, topology: &Topology| {
            let far = Link::new(1e-5, 1e-9 / gigabytes);
            Network { far, ..Network::default() }.longest_message(topology) / 1024
        };
        assert_eq!([0.1, 1.0, 3.0, 6.0, 50.0].map(|rate| on(rate, &two)), [128, 128, 256, 512, 512]);
        assert_eq!(on(0.1, &one), 512);
    }

    /// 2α + nβ for an exchange of n bytes in two rounds: the textbook formula.
    #[test]
    fn a_simple_link_matches_the_textbook() {
        let traffic = Traffic { messages: 2.0, handled: 4.0, exchanged: 1e6, ..Traffic::default() };
        let cost = Cost { far: traffic, added: 1e6, ..Cost::default() };
        let add = Curve(vec![(0.0, 0.0), (1.0, 1e-10)]);
        let network = Network { far: Link::new(1e-5, 1e-9), add, ..Network::default() };
        assert!((network.seconds(&cost, 4) - (2e-5 + 4e-3 + 4e-4)).abs() < 1e-12);
    }
}
