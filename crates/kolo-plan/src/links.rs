//! Links that can be rented.

use kolo_schedule::Link;

/// Kind of link of a worker or a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkKind {
    /// Name by which users select it.
    pub name: &'static str,
    /// Nominal Gbit/s in each direction.
    pub gigabits: f64,
    /// Share of the nominal rate that long messages reach.
    pub payload: f64,
    /// Seconds from the start of a short message to its arrival, without its handling at both ends.
    pub latency: f64,
    /// Seconds of a worker's time per message that it sends or receives.
    pub per_message: f64,
    /// Seconds of a core per byte that a worker sends and receives.
    pub cpu_per_byte: f64,
    /// Source of these figures.
    pub source: &'static str,
}

/// Seconds to handle a short message at a socket's end: half of 5.3 µs over loopback (docs/benchmarks.md).
pub(crate) const SOCKET: f64 = 2.6e-6;
/// Seconds per byte that passes sockets in both directions. Over loopback all of Kolo's time is time of
/// cores: 9.85 ms for an all-reduce of 46.8 MB between two ranks (docs/benchmarks.md).
pub(crate) const SOCKET_BYTE: f64 = 9.85e-3 / 46.8e6;
/// Seconds for a card to take a message from a queue and put it into another; an estimate.
const QUEUE: f64 = 0.5e-6;

const LOOPBACK: &str = "46.8 MB in 9.85 ms between two ranks, 5.3 µs for a few bytes (docs/benchmarks.md); all of it is time of cores";

const fn ethernet(name: &'static str, gigabits: f64) -> LinkKind {
    LinkKind {
        name,
        gigabits,
        payload: 0.941,
        latency: 30e-6,
        per_message: SOCKET,
        cpu_per_byte: SOCKET_BYTE,
        source: "1,448 of 1,538 bytes of a full frame are payload of TCP; 30 µs through sockets in one data center",
    }
}

const fn infiniband(name: &'static str, gigabits: f64) -> LinkKind {
    LinkKind {
        name,
        gigabits,
        payload: 0.96,
        latency: 14e-6,
        per_message: QUEUE,
        cpu_per_byte: 0.0,
        source: "96 of 100 GB/s over four HDR links at best (nccl-tests); latency: NCCL 2.30, tuning.cc, net, Simple",
    }
}

/// All known kinds.
pub static LINKS: &[LinkKind] = &[
    LinkKind {
        name: "loopback",
        gigabits: 8e-9 / SOCKET_BYTE,
        payload: 0.999,
        latency: 1e-9,
        per_message: SOCKET,
        cpu_per_byte: SOCKET_BYTE,
        source: LOOPBACK,
    },
    ethernet("100mbe", 0.1),
    ethernet("1gbe", 1.0),
    ethernet("10gbe", 10.0),
    ethernet("25gbe", 25.0),
    ethernet("100gbe", 100.0),
    infiniband("hdr", 200.0),
    infiniband("ndr", 400.0),
    LinkKind {
        name: "pcie4",
        gigabits: 256.0,
        payload: 0.8,
        latency: 5.7e-6,
        per_message: QUEUE,
        cpu_per_byte: 0.0,
        source: "16 lanes of 16 GT/s, four fifths after headers and flow control; latency: NCCL 2.30, \
                 tuning.cc, PCI, Ring, Simple",
    },
    LinkKind {
        name: "pcie5",
        gigabits: 512.0,
        payload: 0.8,
        latency: 5.7e-6,
        per_message: QUEUE,
        cpu_per_byte: 0.0,
        source: "16 lanes of 32 GT/s; otherwise as pcie4",
    },
    LinkKind {
        name: "nvlink3",
        gigabits: 2400.0,
        payload: 0.67,
        latency: 3.4e-6,
        per_message: QUEUE,
        cpu_per_byte: 0.0,
        source: "about 200 of 300 GB/s (nccl-tests, 8 × A100); latency: NCCL 2.30, tuning.cc, NVLink, Ring, \
                 Simple",
    },
    LinkKind {
        name: "nvlink4",
        gigabits: 3600.0,
        payload: 0.82,
        latency: 3.4e-6,
        per_message: QUEUE,
        cpu_per_byte: 0.0,
        source: "370 of 450 GB/s (nccl-tests, 8 × H100); latency as nvlink3",
    },
];

impl LinkKind {
    /// Returns the costs of `count` such links side by side.
    pub fn link(&self, count: f64) -> Link {
        let per_byte = 8.0 / (self.gigabits * 1e9 * self.payload * count);
        Link { per_message: self.per_message, ..Link::new(self.latency, per_byte) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_unique_name_and_a_source() {
        let names: std::collections::BTreeSet<&str> = LINKS.iter().map(|link| link.name).collect();
        assert_eq!(names.len(), LINKS.len());
        assert!(LINKS.iter().all(|link| !link.source.is_empty() && link.payload < 1.0));
    }
}
