//! Measures the links between nodes, from their first ranks: the latency of a message, and the rate in
//! each direction and in both at once.
//!
//! Each pair of nodes measures alone, but pairs without a common node measure at the same time. The rounds
//! are those of a tournament: N nodes need N − 1 rounds (N if N is odd) for all pairs.

use std::time::Instant;

use kolo_comm::schedule::{Message, Range};
use kolo_comm::{Buffer, Collective, Error, Group, Rank};
use serde::{Deserialize, Serialize};

/// Number of round trips; their lower quartile counts.
const ROUND_TRIPS: usize = 20;
/// Sizes of the messages that measure a rate: each is four times the one before, until one takes long enough.
const LENGTHS: [usize; 4] = [256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Duration from which a message is long enough, in seconds.
const LONG: f64 = 20e-3;
/// Duration from which a message is not repeated, in seconds: long messages vary little.
const VERY_LONG: f64 = 0.2;
/// Number of messages of each size, of which the fastest counts.
const SAMPLES: usize = 3;
/// Maximum number of rounds, and so of links per node: a sample is enough for a large job.
const MOST_ROUNDS: usize = 32;

/// A link between two nodes, measured by their first ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkFacts {
    /// The lower rank.
    pub from: usize,
    /// The higher rank.
    pub to: usize,
    /// Seconds of a message in one direction, half of a round trip.
    pub latency: f64,
    /// Bytes per second from the lower rank to the higher one.
    pub there: f64,
    /// Bytes per second from the higher rank to the lower one.
    pub back: f64,
    /// Bytes per second in each direction, both at once.
    pub both: f64,
}

/// Measures the links of this rank to higher ranks. A collective. Returns an empty list on one node. Fails if
/// a collective fails (naming the rank).
pub fn measure_links(group: &Group) -> Result<Vec<LinkFacts>, Error> {
    let firsts: Vec<Rank> = group.topology().nodes().iter().map(|node| node[0]).collect();
    let own = firsts.iter().position(|first| *first == group.rank());
    let mut links = Vec::new();
    for round in rounds(firsts.len()).into_iter().take(MOST_ROUNDS) {
        group.barrier()?;
        let pair = own.and_then(|own| round.into_iter().find(|(one, other)| *one == own || *other == own));
        if let Some((one, other)) = pair {
            links.extend(measure(group, firsts[one], firsts[other])?);
        }
    }
    group.barrier()?;
    Ok(links)
}

/// Returns the pairs of each round, the lower node first, by the circle method.
fn rounds(nodes: usize) -> Vec<Vec<(usize, usize)>> {
    // With an odd number of nodes one of them pauses in each round.
    let seats = nodes.next_multiple_of(2);
    let turns = seats.saturating_sub(1);
    let pair = |round: usize, seat: usize| {
        let one = (round + seat) % turns;
        let other = if seat == 0 { turns } else { (round + turns - seat) % turns };
        (one.min(other), one.max(other))
    };
    let round =
        |round| (0..seats / 2).map(|seat| pair(round, seat)).filter(|(_, other)| *other < nodes).collect();
    (0..turns).map(round).collect()
}

/// Measures the link between two ranks, which both call it; the lower one gets the result.
fn measure(group: &Group, lower: Rank, higher: Rank) -> Result<Option<LinkFacts>, Error> {
    let latency = latency(group, lower, higher)?;
    let there = one_way(group, lower, higher)?;
    let back = one_way(group, higher, lower)?;
    let both = both_ways(group, lower, higher)?;
    // The sender measures: the higher rank has the rate of its direction.
    let mut figures = [back];
    if group.rank() == higher {
        group.send(&figures, lower)?;
        return Ok(None);
    }
    group.receive(&mut figures, higher)?;
    Ok(Some(LinkFacts { from: lower.0, to: higher.0, latency, there, back: figures[0], both }))
}

/// Seconds of a short message, half of a round trip.
fn latency(group: &Group, lower: Rank, higher: Rank) -> Result<f64, Error> {
    let mut samples = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let began = Instant::now();
        if group.rank() == lower {
            group.send(&[0u8], higher)?;
            group.receive(&mut [0u8], higher)?;
        } else {
            group.receive(&mut [0u8], lower)?;
            group.send(&[0u8], lower)?;
        }
        samples.push(began.elapsed().as_secs_f64() / 2.0);
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples[ROUND_TRIPS / 4])
}

/// Bytes per second from one rank to another, measured by the sender.
fn one_way(group: &Group, sender: Rank, receiver: Rank) -> Result<f64, Error> {
    let sends = group.rank() == sender;
    let peer = if sends { receiver } else { sender };
    rate(group, peer, sends, |group, buffer| {
        let all = [Message { peer, range: Range { start: 0, len: buffer.len() } }].into();
        let (send, receive) = if sends { (all, [].into()) } else { ([].into(), all) };
        let buffer = group.run(&Collective::Exchange { send, receive }, buffer)?;
        match sends {
            true => group.receive(&mut [0u8], peer)?,
            false => group.send(&[0u8], peer)?,
        }
        Ok(buffer)
    })
}

/// Bytes per second in each direction when both ranks send at once.
fn both_ways(group: &Group, lower: Rank, higher: Rank) -> Result<f64, Error> {
    let decides = group.rank() == lower;
    let peer = if decides { higher } else { lower };
    let rate = rate(group, peer, decides, |group, buffer| {
        let half = buffer.len() / 2;
        let part = |start| [Message { peer, range: Range { start, len: half } }].into();
        group.run(&Collective::Exchange { send: part(half), receive: part(0) }, buffer)
    })?;
    Ok(rate / 2.0)
}

/// Bytes per second of `transfer` over a whole buffer, for the longest message. One rank decides when the
/// measurement ends; only its result is valid.
fn rate(
    group: &Group,
    peer: Rank,
    decides: bool,
    transfer: impl Fn(&Group, Buffer<u8>) -> Result<Buffer<u8>, Error>,
) -> Result<f64, Error> {
    let timed = |buffer: Buffer<u8>| {
        let began = Instant::now();
        let buffer = transfer(group, buffer)?;
        Ok::<_, Error>((buffer, began.elapsed().as_secs_f64().max(1e-9)))
    };
    let mut rate = 0f64;
    let mut is_enough = false;
    for bytes in LENGTHS {
        if !agree(group, peer, decides, !is_enough)? {
            break;
        }
        let mut buffer = group.alloc::<u8>(bytes)?;
        let mut quickest = f64::INFINITY;
        for _ in 0..SAMPLES {
            let seconds;
            (buffer, seconds) = timed(buffer)?;
            quickest = quickest.min(seconds);
            if !agree(group, peer, decides, seconds < VERY_LONG)? {
                break;
            }
        }
        // The longest message counts: buffers on the way take short ones faster than the link carries them.
        rate = bytes as f64 / quickest;
        is_enough = quickest > LONG;
    }
    Ok(rate)
}

/// Sends or receives the decision to continue, which one of two ranks takes.
fn agree(group: &Group, peer: Rank, decides: bool, goes_on: bool) -> Result<bool, Error> {
    let mut message = [u8::from(goes_on)];
    match decides {
        true => group.send(&message, peer)?,
        false => group.receive(&mut message, peer)?,
    }
    Ok(message[0] != 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kolo_comm::Options;
    use kolo_testing::{Over, spawn};

    use super::*;

    #[test]
    fn every_node_meets_every_other_one_once_and_never_two_at_a_time() {
        for nodes in 0..12 {
            let all = rounds(nodes);
            let mut pairs = BTreeSet::new();
            for round in &all {
                let busy: BTreeSet<usize> = round.iter().flat_map(|(one, other)| [*one, *other]).collect();
                assert_eq!(busy.len(), 2 * round.len(), "{nodes}: {round:?}");
                pairs.extend(round.iter().copied());
            }
            let expected: BTreeSet<(usize, usize)> =
                (0..nodes).flat_map(|one| (one + 1..nodes).map(move |other| (one, other))).collect();
            assert_eq!(pairs, expected, "{nodes}");
        }
    }

    #[test]
    fn the_first_ranks_of_all_nodes_measure_their_links() {
        // Nodes of two ranks.
        let all = spawn(Over::Mixed, 6, &Options::default(), |group| measure_links(&group).unwrap());
        let pairs = |rank: usize| all[rank].iter().map(|link| (link.from, link.to)).collect::<BTreeSet<_>>();
        assert_eq!(pairs(0), [(0, 2), (0, 4)].into());
        assert_eq!(pairs(2), [(2, 4)].into());
        assert!([1, 3, 4, 5].iter().all(|rank| all[*rank].is_empty()));
        for link in all.iter().flatten() {
            assert!(link.latency > 0.0 && link.there > 1e6 && link.back > 1e6 && link.both > 1e6, "{link:?}");
        }
    }
}
