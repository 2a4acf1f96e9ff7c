//! Measures the cost of the network as a group forms: some messages between neighbors, in milliseconds.
//!
//! All ranks measure at once because collectives use the links at once: ranks share cores and network
//! interfaces. Sub-groups take over the job's figures, and later groups of a process earlier ones'.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::collective::Collective;
use crate::group::Group;
use crate::kernel;
use kolo_rendezvous::Error;
use kolo_schedule::tree::Contributions;
use kolo_schedule::{Curve, Link, Message, Network, Op, Range, Rank};
use parking_lot::Mutex;

const LENGTHS: [usize; 7] = [4, 4 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20];
/// Bytes of the measured additions: within the first cache, within the last one, and beyond it.
const ADDED: [usize; 3] = [64 << 10, 1 << 20, 16 << 20];
const SAMPLES: usize = 5;
/// Bytes up to which a message has more samples, and their number: the time of short messages varies.
const FEW: (usize, usize) = (4 << 10, 25);
/// Number of messages sent at once, and of rounds in sequence, that separate the costs of one message.
const MANY: usize = 8;

/// Directions of the messages.
#[derive(Clone, Copy)]
enum Way {
    /// Every rank sends and receives at once.
    Both,
    /// Odd places of the ring receive while the others send.
    One,
}

/// Messages to send: their number at once, their bytes, and the number of rounds.
struct Talk {
    messages: usize,
    bytes: usize,
    rounds: usize,
}
/// Seconds from which a length is measured once and is the last one: time grows linearly beyond it.
const LONG: f64 = 8e-3;
/// Seconds below which a length is measured again after the longer ones. At first some ranks are still
/// starting, and short messages take a hundred times as long as a millisecond later.
const QUICK: f64 = 1e-3;
/// Maximum bytes of all ranks' buffers together: many ranks on one host measure only short messages.
const MOST: usize = 256 << 20;
/// Longest message between ranks that share memory: memory stays allocated once it has been shared.
const LONGEST_SHARED: usize = 8 << 20;

/// The properties of a group that its measurement depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GroupClass {
    transport: &'static str,
    world: usize,
    /// Number of ranks of the largest node.
    largest: usize,
    nodes: usize,
}

/// Earlier measurements of this process, which further groups reuse.
static MEASURED: Mutex<BTreeMap<GroupClass, Network>> = Mutex::new(BTreeMap::new());

/// Returns the figures of the most similar group with the same links, so a death needs no new measurement.
fn nearest(measured: &BTreeMap<GroupClass, Network>, kind: GroupClass) -> Option<&Network> {
    let links = |kind: &GroupClass| (kind.transport, kind.largest > 1, kind.nodes > 1);
    let alike = measured.iter().filter(|(other, _)| links(other) == links(&kind));
    alike.min_by_key(|(other, _)| other.world.abs_diff(kind.world)).map(|(_, network)| network)
}

impl Group {
    /// Measures the links within and between nodes, unless some rank has done so before, even with
    /// another number of ranks: nobody waits after a death or a join. Afterwards all ranks have the same
    /// figures, because they must choose the same algorithms.
    pub(crate) fn measured(self) -> Result<Group, Error> {
        let topology = self.topology();
        let (nodes, largest) =
            (topology.nodes().len(), topology.nodes().iter().map(Vec::len).max().unwrap_or(1));
        let kind = GroupClass { transport: self.transport(), world: self.world_size(), largest, nodes };
        let known = nearest(&MEASURED.lock(), kind).cloned();
        let all: Vec<Option<Network>> = self.all_gather_value(&known)?;
        // Ranks may have measured in different jobs: the first rank's figures count.
        let mut network = match all.into_iter().flatten().next() {
            Some(network) => network,
            None => self.measure(largest)?,
        };
        (network.sharing, network.crowding) = (largest as f64, self.crowding()?);
        log::debug!("{kind:?} costs {network:?}");
        MEASURED.lock().insert(kind, network.clone());
        self.with_backend(|backend| backend.learn(network));
        Ok(self)
    }

    /// Ranks per core of the fullest host, at least 1.
    fn crowding(&self) -> Result<f64, Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let on_host = self.context.as_ref().map_or(1, |context| context.on_host);
        self.slowest(&mut [(on_host as f64 / cores as f64).max(1.0)])
    }

    fn measure(&self, largest: usize) -> Result<Network, Error> {
        let topology = self.topology();
        let mut network = self.network();
        if largest > 1 {
            network.near = self.link(|own| topology.nodes()[own].clone())?;
        }
        if topology.nodes().len() > 1 {
            // The ring of the ranks with this rank's place on their nodes.
            let place = |own: usize| topology.nodes()[own].iter().position(|rank| *rank == self.rank());
            network.far = self.link(|own| {
                let place = place(own).unwrap_or(0);
                topology.nodes().iter().filter_map(|node| node.get(place).copied()).collect()
            })?;
        }
        let mut add = vec![(0.0, 0.0)];
        for bytes in ADDED.into_iter().filter(|bytes| 2 * bytes * self.world_size() <= MOST) {
            self.barrier()?;
            add.push((bytes as f64, self.slowest(&mut add_seconds(bytes))?));
        }
        network.add = Curve::measured(add);
        self.forget_memory();
        Ok(network)
    }

    /// Measures the costs of the links around a ring, on the slowest rank.
    fn link(&self, ring: impl Fn(usize) -> Vec<Rank>) -> Result<Link, Error> {
        let ring = ring(self.topology().node_of(self.rank()));
        let curve = |way: Way| {
            let mut measured = Vec::new();
            for bytes in LENGTHS {
                let seconds = self.talk(&ring, way, Talk { messages: 1, bytes, rounds: 1 })?;
                measured.push((bytes as f64, seconds));
                // Bytes of the buffers for the next length, four times this one, in both directions.
                let next = 2 * 4 * bytes;
                let shared = self.shares_memory() && next > 2 * LONGEST_SHARED;
                if seconds > LONG || shared || next * self.world_size() > MOST {
                    break;
                }
            }
            for (bytes, seconds) in measured.iter_mut().filter(|(_, seconds)| *seconds < QUICK) {
                let talk = Talk { messages: 1, bytes: *bytes as usize, rounds: 1 };
                *seconds = seconds.min(self.talk(&ring, way, talk)?);
            }
            Ok::<_, Error>(Curve::measured(measured))
        };
        let (exchange, one_way) = (curve(Way::Both)?, curve(Way::One)?);
        let short =
            |messages, rounds| self.talk(&ring, Way::Both, Talk { messages, bytes: LENGTHS[0], rounds });
        let (one, more, rounds) = (exchange.0[0].1, short(MANY, 1)?, short(1, MANY)?);
        // One round takes start + α + 2h. Each further message takes 2h more, each further round α + 2h.
        let further = (MANY - 1) as f64;
        let (round, message) = ((rounds - one) / further, (more - one) / (2.0 * further));
        let round = round.clamp(0.0, one);
        let per_message = message.clamp(0.0, round / 2.0);
        let latency = round - 2.0 * per_message;
        Ok(Link { start: one - round, latency, per_message, exchange, one_way })
    }

    /// Returns the seconds in which ranks send to the ring's next rank and receive from the previous one.
    fn talk(&self, ring: &[Rank], way: Way, talk: Talk) -> Result<f64, Error> {
        let Talk { messages, bytes, rounds } = talk;
        let place = ring.iter().position(|rank| *rank == self.rank()).unwrap_or(0);
        let to = ring[(place + 1) % ring.len()];
        let from = ring[(place + ring.len() - 1) % ring.len()];
        // A rank without a partner takes part in the other calls.
        let (sends, receives) = match way {
            Way::Both => (ring.len() > 1, ring.len() > 1),
            Way::One => (place % 2 == 0 && place + 1 < ring.len(), place % 2 == 1),
        };
        let list = |on: bool, peer: Rank, start: usize| {
            let range = |n: usize| Range { start: start + n * bytes, len: bytes };
            (0..if on { messages } else { 0 }).map(|n| Message { peer, range: range(n) }).collect()
        };
        let (send, receive) = (list(sends, to, messages * bytes), list(receives, from, 0));
        let exchange = Collective::Exchange { send, receive };
        let mut buffer = self.alloc::<u8>(2 * messages * bytes)?;
        let mut samples = Vec::new();
        for number in 0..if bytes <= FEW.0 { FEW.1 } else { SAMPLES } {
            self.barrier()?;
            let began = Instant::now();
            for _ in 0..rounds {
                buffer = self.run(&exchange, buffer)?;
            }
            samples.push(began.elapsed().as_secs_f64());
            // Slow messages get a single sample: their time varies little.
            if number == 0 && self.slowest(&mut samples)? > LONG {
                break;
            }
        }
        self.slowest(&mut samples)
    }

    /// Returns the lower quartile of the samples, each taken from its slowest rank. Other load on the
    /// machine only ever slows a sample.
    fn slowest(&self, samples: &mut [f64]) -> Result<f64, Error> {
        self.all_reduce(samples, Op::Max)?;
        samples.sort_by(f64::total_cmp);
        Ok(samples[samples.len() / 4])
    }
}

/// Samples of the seconds to add `bytes` bytes of `f32` to as many others.
fn add_seconds(bytes: usize) -> [f64; SAMPLES] {
    let len = bytes / size_of::<f32>();
    let (mut sum, more) = (vec![0f32; len], vec![1f32; len]);
    let program = Contributions::one_each(2).program();
    let mut once = || {
        let began = Instant::now();
        let into = sum.as_mut_ptr();
        // SAFETY: both vectors have that many elements.
        unsafe { kernel::fold(into, &[into.cast_const(), more.as_ptr()], len, &program, Op::Sum, None) };
        began.elapsed().as_secs_f64()
    };
    // The first call includes fetching memory from the system.
    once();
    std::array::from_fn(|_| once())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_the_same_links_know_for_one_another() {
        let kind = |transport, world, nodes| GroupClass { transport, world, largest: world / nodes, nodes };
        let network = |add| Network { add: Curve(vec![(0.0, add)]), ..Network::default() };
        let measured: BTreeMap<GroupClass, Network> = [
            (kind("shm", 1, 1), network(1.0)),
            (kind("shm", 4, 1), network(4.0)),
            (kind("shm", 8, 1), network(8.0)),
            (kind("shm+tcp", 8, 2), network(16.0)),
        ]
        .into();
        let found = |kind| nearest(&measured, kind).map(|network| network.add.0[0].1);
        assert_eq!(found(kind("shm", 8, 1)), Some(8.0));
        assert_eq!(
            found(kind("shm", 3, 1)),
            Some(4.0),
            "four ranks are more like three than one, which has no link"
        );
        assert_eq!(found(kind("shm+tcp", 4, 2)), Some(16.0));
        assert_eq!(found(kind("shm+tcp", 2, 2)), None, "nobody has measured memory between such nodes");
        assert_eq!(found(kind("tcp", 4, 4)), None);
    }
}
