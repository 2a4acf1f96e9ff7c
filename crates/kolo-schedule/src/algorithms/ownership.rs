//! Ownership assigns each element of a buffer to the rank that adds it. The owner of an element receives
//! all contributions to it and sends the sum to the ranks that need it.
//!
//! Without servers all ranks own equal amounts. A server (see
//! [`Contributions::with_servers`](crate::tree::Contributions::with_servers)) sends no contribution and
//! needs no sum, so its link has room for more. With N workers that contribute and need the sum, and k
//! servers, let a worker own x of the buffer and a server y, where Nx + ky = 1. In either direction a
//! worker's link carries 1 + (N−2)x of the buffer (its contribution to what others own, and the sum of what
//! it owns to N−1 others), and a server's link carries Ny. The maximum of both is least where they are
//! equal: x = (N−k)/D and y = 2(N−1)/D with D = N² + kN − 2k, and an all-reduce of n bytes takes
//! 2N(N−1)/D·nβ (BytePS: Jiang et al. 2020, section 4.1). For k ≥ N workers own nothing, and it takes nβ: a
//! worker's own contribution leaves, and the sum arrives.
//!
//! Without servers, where the ranks' links have different rates
//! ([`Contributions::with_ownership`](crate::tree::Contributions::with_ownership)), each rank owns as much
//! as its link has room for ([`ownership_by_rate`](crate::ownership_by_rate)).

use super::steps::LINE;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::schedule::Range;

/// Minimum number of rounds for a buffer of at least as many messages, where the ranks' shares differ.
/// Contributions of one round leave while sums of an earlier round arrive. In the first two and the last
/// two rounds links carry only one direction.
const ROUNDS: usize = 24;

/// Chunk that each rank owns, and its division into segments.
pub(super) struct Ownership {
    chunks: Vec<Range>,
    /// Number of elements in a segment of each rank's chunk.
    segments: Vec<usize>,
}

impl Ownership {
    /// Uses these chunks, one per rank, in segments of one length.
    pub(super) fn of_chunks(chunks: Vec<Range>, segment: usize) -> Self {
        let segments = vec![segment.max(1); chunks.len()];
        Ownership { chunks, segments }
    }

    /// Divides a buffer among all ranks: evenly, by the shares of workers and servers, or by the rates of
    /// links. In the latter two cases all chunks have equally many segments, so that links are busy together.
    pub(super) fn of_all(problem: &Problem<'_>) -> Self {
        let (whole, contributions) = (Range { start: 0, len: problem.len }, problem.contributions);
        let weights = match contributions.ownership() {
            _ if contributions.has_servers() => weights(problem),
            Some(ownership) => ownership.iter().map(|weight| *weight as usize).collect(),
            None => return Self::of_chunks(super::steps::owned(whole, problem.world()), problem.segment),
        };
        let chunks = by_weight(whole.len, &weights);
        let longest = chunks.iter().map(|chunk| chunk.len).max().unwrap_or(0);
        let rounds = |len: usize| len.div_ceil(problem.segment.max(1)).max(1);
        let rounds = rounds(longest).max(rounds(whole.len).min(ROUNDS));
        let segment = |chunk: &Range| chunk.len.div_ceil(rounds).next_multiple_of(LINE).max(1);
        let segments = chunks.iter().map(segment).collect();
        Ownership { chunks, segments }
    }

    /// Returns a rank's segment with this number; empty past the last one.
    pub(super) fn segment(&self, owner: Rank, index: usize) -> Range {
        self.chunks[owner.0].segment(index, self.segments[owner.0])
    }

    /// Returns the maximum number of segments of a rank.
    pub(super) fn rounds(&self) -> usize {
        let of = |(chunk, segment): (&Range, &usize)| chunk.len.div_ceil(*segment);
        self.chunks.iter().zip(&self.segments).map(of).max().unwrap_or(0)
    }
}

/// Returns each rank's share of a buffer, in whole numbers. This is the module's formula, extended to
/// workers that only need the sum. With N workers that contribute and R that need the sum, a worker's link
/// carries 1 + (R−2)x and a server's Ry, so x is to y as R−k to N+R−2.
fn weights(problem: &Problem<'_>) -> Vec<usize> {
    let (world, contributions) = (problem.world(), problem.contributions);
    let is_server = |rank: &usize| contributions.is_server(Rank(*rank));
    let contributes = |rank: usize| !contributions.of(Rank(rank)).is_empty();
    let servers = (0..world).filter(is_server).count();
    let (readers, contributors) = (world - servers, (0..world).filter(|rank| contributes(*rank)).count());
    // A single worker already has the sum.
    let of_worker = if readers == 1 { 1 } else { readers.saturating_sub(servers) };
    let of_server = readers + contributors - 2;
    let of = |rank: usize| match is_server(&rank) {
        true => of_server,
        false if contributes(rank) => of_worker,
        false => 0,
    };
    (0..world).map(of).collect()
}

/// Divides a buffer into consecutive chunks of whole cache lines.
fn by_weight(len: usize, weights: &[usize]) -> Vec<Range> {
    let (sum, mut before) = (weights.iter().sum::<usize>().max(1), 0);
    let cut = |weight: usize| (len * weight / sum).next_multiple_of(LINE).min(len);
    let chunk = |weight: &usize| {
        before += weight;
        let end = if before == sum { len } else { cut(before) };
        Range::between(cut(before - weight), end)
    };
    weights.iter().map(chunk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;
    use crate::topology::Topology;
    use crate::tree::Contributions;

    /// Returns each rank's share of a buffer, for these shards per rank; the last `servers` ranks are
    /// servers.
    fn shares(shards: &[usize], servers: usize) -> Vec<f64> {
        const LEN: usize = 1_000_000 * LINE;
        let world = shards.len();
        let is_server: Vec<bool> = (0..world).map(|rank| rank >= world - servers).collect();
        let contributions = &Contributions::of_shares(shards).with_servers(&is_server);
        let (operation, topology) = (&Operation::AllReduce, &Topology::separate(world));
        let problem =
            Problem { operation, rank: Rank(0), len: LEN, contributions, topology, segment: 1 << 15 };
        let ownership = Ownership::of_all(&problem);
        let mut next = 0;
        for chunk in &ownership.chunks {
            assert!(chunk.len == 0 || chunk.start == next, "{:?}", ownership.chunks);
            next = next.max(chunk.end());
        }
        assert_eq!(next, LEN, "every element has an owner");
        ownership.chunks.iter().map(|chunk| chunk.len as f64 / LEN as f64).collect()
    }

    #[test]
    fn the_links_of_workers_and_servers_carry_the_same() {
        for workers in 2..=16usize {
            for servers in 1..=20 {
                let shards: Vec<usize> =
                    (0..workers + servers).map(|rank| usize::from(rank < workers)).collect();
                let shares = shares(&shards, servers);
                let (n, k) = (workers as f64, servers as f64);
                let (of_worker, of_server) = (1.0 + (n - 2.0) * shares[0], n * shares[workers]);
                let formula = match servers < workers {
                    true => 2.0 * n * (n - 1.0) / (n * n + k * n - 2.0 * k),
                    false => 1.0,
                };
                assert!((of_worker - formula).abs() < 1e-3, "N={n} k={k}: {of_worker}, formula {formula}");
                let idle = if servers > workers { n / k } else { formula };
                assert!((of_server - idle).abs() < 1e-3, "N={n} k={k}: {of_server}, formula {idle}");
            }
        }
    }

    #[test]
    fn a_single_worker_owns_everything_and_a_rank_without_shards_nothing() {
        assert_eq!(shares(&[3, 0, 0], 2), [1.0, 0.0, 0.0]);
        assert_eq!(shares(&[1, 1, 0, 0], 2), [0.0, 0.0, 0.5, 0.5]);
        // Two workers with shards, one worker without, one server: x : y = 2 : 3.
        assert_eq!(
            shares(&[1, 1, 0, 0], 1).iter().map(|x| (x * 7.0).round()).collect::<Vec<_>>(),
            [2.0, 2.0, 0.0, 3.0]
        );
    }
}
