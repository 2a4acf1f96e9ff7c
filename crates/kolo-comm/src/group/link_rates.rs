//! Rates of the ranks' links: where links differ, ranks with faster ones can do more.
//!
//! [`measure`](super::measure) finds a single rate for all links, that of the slowest: in a ring, a rank
//! next to a slow one is as slow. Here every rank talks to another one in every round, as in a
//! tournament. A rank's link carries at least its highest rate beside any partner. That rate is exact if
//! some partner's link is at least as fast.

use std::time::Instant;

use super::Group;
use crate::collective::Collective;
use kolo_rendezvous::Error;
use kolo_schedule::{Message, Range, Rank};

/// Maximum number of rounds: with more than eight ranks, not all pairs talk.
const ROUNDS: usize = 7;
/// Bytes of the first message each way, and of the longest.
const BYTES: (usize, usize) = (256 << 10, 8 << 20);
/// Minimum seconds of the fastest pair; messages grow until it takes that long.
const LONG_ENOUGH: f64 = 4e-3;
/// Number of samples of every length. The fastest counts, because other load on the machine only slows it.
const SAMPLES: usize = 2;

/// Returns a rank's partner in a round. Every rank has one, except that with an odd number of ranks one
/// rests in every round (`None`). This is the circle method: one seat stays and the others rotate.
fn partner(rank: usize, world: usize, round: usize) -> Option<usize> {
    let seats = world.next_multiple_of(2) - 1;
    // With an even number of ranks the last one stays; with an odd number that seat is empty.
    let other = if rank == seats {
        (0..seats).find(|other| 2 * other % seats == round % seats)?
    } else if 2 * rank % seats == round % seats {
        seats
    } else {
        (round + seats - rank % seats) % seats
    };
    (other < world).then_some(other)
}

impl Group {
    /// Measures the bytes per second that each rank's link carries each way, in rank order and equal on all
    /// ranks. `None` if some ranks share a node and thus a link. Takes some tens of milliseconds, or longer
    /// over slow links. All ranks must call it. Fails as [`Group::run`] does.
    pub fn link_rates(&self) -> Result<Option<Vec<f64>>, Error> {
        let world = self.world_size();
        if self.topology().nodes().len() < world || world < 2 {
            return Ok(None);
        }
        let mut bytes = BYTES.0;
        loop {
            let seconds = self.seconds_of_pairs(bytes)?;
            let quickest = seconds.iter().flatten().copied().fold(f64::INFINITY, f64::min);
            if quickest >= LONG_ENOUGH || bytes >= BYTES.1 {
                let rate = |of_rank: &Vec<f64>| {
                    bytes as f64 / of_rank.iter().copied().fold(f64::INFINITY, f64::min).max(1e-9)
                };
                return Ok(Some(seconds.iter().map(rate).collect()));
            }
            bytes = (4 * bytes).min(BYTES.1);
        }
    }

    /// Returns the seconds of each rank and round in which the rank and its partner sent each other
    /// `bytes` bytes; infinite if the rank rested.
    fn seconds_of_pairs(&self, bytes: usize) -> Result<Vec<Vec<f64>>, Error> {
        let (rank, world) = (self.rank().0, self.world_size());
        let rounds = (world.next_multiple_of(2) - 1).min(ROUNDS);
        let mut own = vec![f64::INFINITY; rounds];
        let mut buffer = self.alloc::<u8>(2 * bytes)?;
        for _ in 0..SAMPLES {
            for (round, least) in own.iter_mut().enumerate() {
                let peer = partner(rank, world, round);
                let message =
                    |start| peer.map(|peer| Message { peer: Rank(peer), range: Range { start, len: bytes } });
                let list = |start| message(start).into_iter().collect();
                let exchange = Collective::Exchange { send: list(bytes), receive: list(0) };
                self.barrier()?;
                let began = Instant::now();
                buffer = self.run(&exchange, buffer)?;
                if peer.is_some() {
                    *least = least.min(began.elapsed().as_secs_f64());
                }
            }
        }
        let all: Vec<Vec<f64>> = self.all_gather_value(&own)?;
        let of_pair = |rank: usize, round: usize| {
            let peer = partner(rank, world, round).unwrap_or(rank);
            all[rank][round].max(all[peer][round])
        };
        Ok((0..world).map(|rank| (0..rounds).map(|round| of_pair(rank, round)).collect()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_ranks_meets_once() {
        for world in 2..=9usize {
            let rounds = world.next_multiple_of(2) - 1;
            let mut met = vec![vec![0; world]; world];
            for round in 0..rounds {
                for (rank, met) in met.iter_mut().enumerate() {
                    let Some(other) = partner(rank, world, round) else {
                        assert!(world % 2 == 1, "{rank} of {world} rests");
                        continue;
                    };
                    assert_eq!(partner(other, world, round), Some(rank), "{rank} of {world} in {round}");
                    met[other] += 1;
                }
            }
            for (rank, met) in met.iter().enumerate() {
                let others = met.iter().enumerate().filter(|(other, _)| *other != rank);
                assert!(met[rank] == 0 && others.clone().all(|(_, times)| *times == 1), "{rank}: {met:?}");
            }
        }
    }

    #[test]
    fn threads_that_share_a_node_have_no_links_of_their_own() {
        let rates = crate::threads::spawn(3, |group| group.link_rates().unwrap()).unwrap();
        assert_eq!(rates, [None, None, None]);
    }
}
