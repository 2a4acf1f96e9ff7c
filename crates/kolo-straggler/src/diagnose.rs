//! Diagnosis of the rank that delays the others, from the times of all ranks. Pure, so that all ranks
//! conclude the same.

use kolo_schedule::Rank;

use super::median::median;
use kolo_schedule::seconds::{LEAST, Seconds};

/// Factor of a slow rank's time and that of the others.
const FACTOR: f64 = 1.3;

/// One rank's times: medians over some steps, in seconds a step; and the costs of stalls besides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// Its shards.
    pub shards: usize,
    /// Time in which the training thread computed, or did anything else but wait.
    pub compute: f64,
    /// Time in which it waited for data.
    pub data: f64,
    /// Difference between mean and median of its computing time, because of steps that took much longer than
    /// most.
    pub compute_stalls: f64,
    /// Likewise for its waiting for data.
    pub data_stalls: f64,
    /// Time in which it waited for communication.
    pub exposed: f64,
    /// The rank for which its collectives waited longest, and for how long.
    pub waited_for: Option<(Rank, f64)>,
    /// For each bucket the time from the start of the last backward pass until its gradients were complete;
    /// 0 if it got none.
    pub ready: Vec<f64>,
}

impl Times {
    /// Numbers besides those of the buckets.
    const FIXED: usize = 8;

    /// Encodes the times as numbers, as many for every rank with as many buckets.
    pub fn encode(&self) -> Vec<f64> {
        let (peer, seconds) = self.waited_for.map_or((-1.0, 0.0), |(rank, time)| (rank.0 as f64, time));
        let (shards, stalls) = (self.shards as f64, [self.compute_stalls, self.data_stalls]);
        let fixed = [shards, self.compute, self.data, stalls[0], stalls[1], self.exposed, peer, seconds];
        fixed.into_iter().chain(self.ready.iter().copied()).collect()
    }

    /// Decodes all ranks' times from their numbers, one rank after another.
    pub fn decode(table: &[f64], world: usize) -> Vec<Times> {
        let row = |row: &[f64]| Times {
            shards: row[0] as usize,
            compute: row[1],
            data: row[2],
            compute_stalls: row[3],
            data_stalls: row[4],
            exposed: row[5],
            waited_for: (row[6] >= 0.0).then(|| (Rank(row[6] as usize), row[7])),
            ready: row[Self::FIXED..].to_vec(),
        };
        table.chunks_exact((table.len() / world.max(1)).max(Self::FIXED)).map(row).collect()
    }

    /// Seconds a step in which the other ranks would have to wait for it.
    pub(crate) fn busy(&self) -> f64 {
        self.computing() + self.waiting()
    }

    /// Those seconds in a step without stalls.
    pub(crate) fn busy_without_stalls(&self) -> f64 {
        self.compute + self.data
    }

    /// Seconds a step in which it computes, on average.
    fn computing(&self) -> f64 {
        self.compute + self.compute_stalls
    }

    /// Seconds a step in which it waits for data, on average.
    fn waiting(&self) -> f64 {
        self.data + self.data_stalls
    }

    fn per_shard(&self, seconds: f64) -> f64 {
        seconds / self.shards.max(1) as f64
    }
}

/// Cause of a rank's slowness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Forward and backward passes: a slower processor, or one that other programs use as well.
    Compute,
    /// Reading and preparing samples.
    Data,
    /// Its link.
    Communication,
}

/// A rank that delays the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Straggler {
    /// Its rank in the group that trains.
    pub rank: Rank,
    /// Cause of the delay.
    pub cause: Cause,
    /// Ratio of its time for a shard and that of the other ranks; with [`Cause::Communication`], ratio of
    /// the time for a step with and without the delay.
    pub factor: f64,
    /// Description with the numbers, for the user.
    pub reason: String,
}

/// Returns the rank that delays the others, if any does. Computing and data are compared by shard: a rank
/// with more of them is expected to take longer. A slow link is found among three ranks or more, because a
/// link between two has two ends.
pub fn diagnose(times: &[Times]) -> Option<Straggler> {
    slow(times).or_else(|| far(times))
}

/// Returns the rank that is busy longest, unless its share explains that.
fn slow(times: &[Times]) -> Option<Straggler> {
    let working = || times.iter().enumerate().filter(|(_, times)| times.shards > 0);
    let (index, slowest) = working().max_by(|a, b| a.1.busy().total_cmp(&b.1.busy()))?;
    let others: Vec<&Times> =
        working().filter(|(other, _)| *other != index).map(|(_, times)| times).collect();
    let usual = |get: fn(&Times) -> f64| median(others.iter().map(|times| times.per_shard(get(times))));
    let own = |get: fn(&Times) -> f64| slowest.per_shard(get(slowest));
    let (busy, usually) = (own(Times::busy), usual(Times::busy));
    if others.is_empty() || busy < FACTOR * usually || (busy - usually) * (slowest.shards as f64) < LEAST {
        return None;
    }
    let more = |get: fn(&Times) -> f64| own(get) - usual(get);
    let waits_for_data = more(Times::waiting) > more(Times::computing);
    let (cause, doing) = match waits_for_data {
        true => (Cause::Data, "waits for data for"),
        false => (Cause::Compute, "computes for"),
    };
    let get = if waits_for_data { Times::waiting } else { Times::computing };
    let stalls = |times: &Times| if waits_for_data { times.data_stalls } else { times.compute_stalls };
    let (rank, factor) = (Rank(index), busy / usually.max(1e-9));
    let mut reason = format!(
        "{rank} takes {factor:.1} times as long as the others for a shard: it {doing} {}, they for {}",
        Seconds(own(get)),
        Seconds(usual(get))
    );
    if let (Cause::Compute, Some(late)) = (cause, latest(slowest, &others)) {
        reason += &format!("; its gradients are complete up to {} later", Seconds(late));
    }
    let stalled = slowest.per_shard(stalls(slowest));
    let usually_stalled = median(others.iter().map(|times| times.per_shard(stalls(times))));
    if 2.0 * (stalled - usually_stalled) > more(get) {
        reason += &format!(
            "; it loses {} of that in stalls, for which a CPU quota, garbage collection or another program may \
             be the reason",
            Seconds(stalled)
        );
    }
    Some(Straggler { rank, cause, factor, reason })
}

/// Returns the seconds by which the latest of its buckets is complete after those of the other ranks.
fn latest(slowest: &Times, others: &[&Times]) -> Option<f64> {
    let usual = |bucket: usize| median(others.iter().filter_map(|times| times.ready.get(bucket).copied()));
    let late = slowest.ready.iter().enumerate().map(|(bucket, ready)| ready - usual(bucket));
    late.max_by(f64::total_cmp).filter(|late| *late >= LEAST)
}

/// Returns the rank for which most others wait, longer than its own work explains.
fn far(times: &[Times]) -> Option<Straggler> {
    if times.len() < 3 {
        return None;
    }
    let unexplained = |rank: usize| {
        let own = times[rank].busy();
        let of = |other: &Times| match other.waited_for {
            Some((peer, wait)) if peer.0 == rank => {
                // A wait that no training thread notices delays no rank.
                Some(wait.min(other.exposed) - (own - other.busy()).max(0.0))
            }
            _ => None,
        };
        let waits: Vec<f64> = times.iter().filter_map(of).collect();
        (2 * waits.len() > times.len() - 1).then(|| median(waits))
    };
    let all = (0..times.len()).filter_map(|rank| Some((rank, unexplained(rank)?)));
    let (rank, wait) = all.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = times.iter().enumerate().filter(|(other, times)| *other != rank && times.shards > 0);
    let usual = median(others.map(|(_, times)| times.busy()));
    let factor = 1.0 + wait / usual.max(1e-9);
    if factor < FACTOR || wait < LEAST {
        return None;
    }
    let rank = Rank(rank);
    let reason = format!(
        "{rank} communicates slowly: the others wait {} a step for it, which its computing does not explain; a step takes \
         {factor:.1} times as long",
        Seconds(wait)
    );
    Some(Straggler { rank, cause: Cause::Communication, factor, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(shards: usize, compute: f64, data: f64) -> Times {
        Times { shards, compute, data, ready: vec![0.1, compute], ..Times::default() }
    }

    fn found(times: &[Times]) -> Option<(usize, Cause)> {
        diagnose(times).map(|found| (found.rank.0, found.cause))
    }

    #[test]
    fn a_rank_that_computes_longer_is_named_with_the_numbers() {
        let all = [times(1, 0.19, 0.0), times(1, 0.2, 0.0), times(1, 0.19, 0.0), times(1, 0.31, 0.01)];
        let found = diagnose(&all).unwrap();
        assert_eq!((found.rank, found.cause), (Rank(3), Cause::Compute));
        assert!((found.factor - 1.68).abs() < 0.01, "{}", found.factor);
        for text in
            ["rank 3", "1.7 times", "0.310 s", "0.190 s", "gradients are complete up to 0.120 s later"]
        {
            assert!(found.reason.contains(text), "{text}: {}", found.reason);
        }
    }

    #[test]
    fn a_rank_that_waits_for_data_is_not_blamed_for_computing() {
        let all = [times(1, 0.2, 0.0), times(1, 0.21, 0.3), times(1, 0.2, 0.0)];
        assert_eq!(found(&all), Some((1, Cause::Data)));
        assert!(diagnose(&all).unwrap().reason.contains("waits for data for 0.300 s"));
    }

    #[test]
    fn stalls_are_named_where_they_are_most_of_the_difference() {
        let stalled = |seconds| Times { compute_stalls: seconds, ..times(2, 0.2, 0.0) };
        let found = diagnose(&[stalled(0.01), stalled(0.2)]).unwrap();
        assert_eq!((found.rank, found.cause), (Rank(1), Cause::Compute));
        for text in ["rank 1", "computes for 0.200 s, they for 0.105 s", "loses 0.100 s of that in stalls"] {
            assert!(found.reason.contains(text), "{text}: {}", found.reason);
        }
        let slower = Times { compute: 0.5, ..stalled(0.02) };
        assert!(!diagnose(&[stalled(0.01), slower]).unwrap().reason.contains("stalls"));
        let late = Times { data_stalls: 0.3, ..times(2, 0.2, 0.0) };
        assert!(
            diagnose(&[late.clone(), stalled(0.0)]).unwrap().reason.contains("waits for data for 0.150 s")
        );
    }

    #[test]
    fn shares_are_taken_into_account() {
        // Three times the shards, three times as long: no rank is slow.
        assert_eq!(found(&[times(3, 0.6, 0.0), times(1, 0.2, 0.0)]), None);
        // Twice as slow, but with half of the shards: it delays no rank.
        assert_eq!(found(&[times(4, 0.8, 0.0), times(2, 0.8, 0.0), times(4, 0.81, 0.0)]), None);
        assert_eq!(found(&[times(3, 0.6, 0.0), times(2, 0.8, 0.0)]), Some((1, Cause::Compute)));
        // Ranks without shards cannot be compared.
        assert_eq!(found(&[times(0, 0.0, 0.0), times(1, 0.2, 0.0)]), None);
        assert_eq!(
            found(&[times(0, 0.0, 0.0), times(1, 0.2, 0.0), times(1, 0.5, 0.0)]),
            Some((2, Cause::Compute))
        );
    }

    #[test]
    fn small_differences_are_no_matter() {
        assert_eq!(found(&[times(1, 0.2, 0.0), times(1, 0.25, 0.0)]), None);
        assert_eq!(found(&[times(1, 1e-4, 0.0), times(1, 9e-4, 0.0)]), None);
        assert_eq!(found(&[times(1, 1.9e-3, 0.0), times(1, 4.8e-3, 0.0)]), None);
        let short = diagnose(&[times(1, 1.94e-3, 0.0), times(1, 5.06e-3, 0.0)]).unwrap();
        assert!(short.reason.contains("computes for 5.06 ms, they for 1.94 ms"), "{}", short.reason);
        assert_eq!(found(&[times(1, 0.0, 0.0), times(1, 0.0, 0.0)]), None);
        assert_eq!(found(&[times(4, 0.3, 0.0)]), None);
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn a_slow_link_is_that_of_whom_most_wait_for() {
        let waits = |compute: f64, exposed: f64, peer: usize, seconds: f64| Times {
            exposed,
            waited_for: Some((Rank(peer), seconds)),
            ..times(1, compute, 0.0)
        };
        let link = [waits(0.2, 0.3, 2, 0.3), waits(0.2, 0.3, 2, 0.3), waits(0.2, 0.3, 0, 0.1)];
        assert_eq!(found(&link), Some((2, Cause::Communication)));
        assert!(diagnose(&link).unwrap().reason.contains("rank 2 communicates slowly"));
        let hidden = [waits(0.2, 0.0, 2, 0.3), waits(0.2, 0.0, 2, 0.3), waits(0.2, 0.0, 0, 0.1)];
        assert_eq!(found(&hidden), None, "nobody has to wait");
        let late = [waits(0.5, 0.11, 2, 0.1), waits(0.5, 0.11, 2, 0.1), waits(0.6, 0.0, 0, 0.0)];
        assert_eq!(found(&late), None, "it is a little late, which explains the wait");
        assert_eq!(found(&link[1..]), None, "a link between two has two ends");
    }

    #[test]
    fn times_travel_as_numbers() {
        let one = Times { compute_stalls: 0.75, data_stalls: 2.0, ..times(2, 0.5, 0.25) };
        let other = Times { waited_for: Some((Rank(0), 0.125)), exposed: 1.0, ..times(1, 0.5, 0.25) };
        let table = [one.encode(), other.encode()].concat();
        assert_eq!(Times::decode(&table, 2), [one, other]);
        let bare = Times { ready: Vec::new(), ..times(1, 0.5, 0.0) };
        assert_eq!(Times::decode(&bare.encode(), 1), [bare]);
    }
}
