//! A discrete-event simulation of one collective.

use std::collections::VecDeque;

use kolo_comm::schedule::{Schedule, Source, Step};

use crate::network::Network;

/// One rank of the simulation.
#[derive(Clone, Default)]
struct Clock {
    /// When it has done its steps so far.
    now: f64,
    /// Steps done.
    done: usize,
    /// When its outgoing and its incoming link are free again.
    sending_until: f64,
    receiving_until: f64,
}

/// Seconds until the last rank is done, all ranks starting at 0. `schedules` has one entry a rank; an element takes `element_bytes`
/// bytes.
///
/// # Panics
///
/// If the schedules wait for each other in a circle; every schedule that Kolo builds is proved not to.
pub fn seconds(schedules: &[Schedule], element_bytes: usize, network: &Network) -> f64 {
    let world = schedules.len();
    let mut clocks = vec![Clock::default(); world];
    // arrivals[to][from]: when each message under way is there.
    let mut arrivals = vec![vec![VecDeque::new(); world]; world];
    loop {
        // Of all ranks that can go on, the one that does so first: links are taken in the order of time.
        let ready = (0..world).filter(|&rank| is_ready(&clocks[rank], &schedules[rank], &arrivals[rank]));
        let begin = |rank: usize| begins(&clocks, rank, &schedules[rank].steps[clocks[rank].done]);
        let Some(rank) = ready.min_by(|&a, &b| begin(a).total_cmp(&begin(b))) else { break };
        let step = &schedules[rank].steps[clocks[rank].done];
        clocks[rank].done += 1;
        match step {
            Step::Send { to, range, .. } => {
                let bytes = (range.len * element_bytes) as f64;
                let begin = begins(&clocks, rank, step);
                // The links are busy while the bytes pass; the latency is spent between them.
                let end = begin + network.per_byte * bytes;
                clocks[rank].sending_until = end;
                clocks[to.0].receiving_until = end;
                arrivals[to.0][rank].push_back(end + network.latency);
            }
            // Copies inside a buffer are what an all-to-all keeps for itself: cheap beside the rest.
            Step::Copy { .. } => {}
            Step::Receive { from, .. } => wait(&mut clocks[rank], &mut arrivals[rank][from.0]),
            Step::Reduce { range, sources, .. } => {
                for source in sources.iter() {
                    if let Source::From(from) = source {
                        wait(&mut clocks[rank], &mut arrivals[rank][from.0]);
                    }
                }
                let added = range.len * element_bytes * sources.len().saturating_sub(1);
                clocks[rank].now += network.add_per_byte * added as f64;
            }
        }
    }
    let stuck = (0..world).find(|&rank| clocks[rank].done < schedules[rank].steps.len());
    assert!(stuck.is_none(), "rank {stuck:?} waits for ever");
    clocks.iter().map(|clock| clock.now.max(clock.sending_until)).fold(0.0, f64::max)
}

/// When a rank's next step begins: a message when both links are free.
fn begins(clocks: &[Clock], rank: usize, step: &Step) -> f64 {
    let clock = &clocks[rank];
    match step {
        Step::Send { to, .. } => clock.now.max(clock.sending_until).max(clocks[to.0].receiving_until),
        _ => clock.now,
    }
}

fn is_ready(clock: &Clock, schedule: &Schedule, arrivals: &[VecDeque<f64>]) -> bool {
    match schedule.steps.get(clock.done) {
        None => false,
        Some(Step::Send { .. } | Step::Copy { .. }) => true,
        Some(Step::Receive { from, .. }) => !arrivals[from.0].is_empty(),
        Some(Step::Reduce { sources, .. }) => {
            let needs =
                |rank| sources.iter().filter(|s| matches!(s, Source::From(from) if from.0 == rank)).count();
            (0..arrivals.len()).all(|rank| arrivals[rank].len() >= needs(rank))
        }
    }
}

fn wait(clock: &mut Clock, arrivals: &mut VecDeque<f64>) {
    if let Some(arrival) = arrivals.pop_front() {
        clock.now = clock.now.max(arrival);
    }
}

#[cfg(test)]
mod tests {
    use kolo_comm::schedule::{ALGORITHMS, Operation, Problem};
    use kolo_comm::tree::Contributions;
    use kolo_comm::{Rank, Topology};

    use super::*;

    const NETWORK: Network = Network { latency: 5e-6, per_byte: 1e-9, add_per_byte: 1e-10 };

    fn all_reduce(name: &str, world: usize, len: usize) -> f64 {
        let algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name == name).unwrap();
        let (contributions, topology) = (&Contributions::one_each(world), &Topology::separate(world));
        let build = |rank| {
            let (operation, rank) = (&Operation::AllReduce, Rank(rank));
            let problem = Problem { operation, rank, len, contributions, topology, segment: len };
            (algorithm.build)(&problem)
        };
        let schedules: Vec<Schedule> = (0..world).map(build).collect();
        seconds(&schedules, 4, &NETWORK)
    }

    /// 2(P−1)α + 2(P−1)/P·nβ + (P−1)/P·nγ (Thakur, Rabenseifner & Gropp 2005, section 4.4).
    #[test]
    fn ring_takes_what_its_formula_says() {
        for world in [2usize, 3, 4, 8, 16] {
            let len = 16 * world * 10_000;
            let (p, n) = (world as f64, 4.0 * len as f64);
            let Network { latency, per_byte, add_per_byte } = NETWORK;
            let moved = (p - 1.0) / p * n;
            let expected = 2.0 * (p - 1.0) * latency + 2.0 * moved * per_byte + moved * add_per_byte;
            let got = all_reduce("ring", world, len);
            assert!((got / expected - 1.0).abs() < 1e-6, "{world} ranks: {got} s, formula {expected} s");
        }
    }

    /// 2·log₂P·α + 2(P−1)/P·nβ + (P−1)/P·nγ (Rabenseifner 2004, section 4).
    #[test]
    fn halving_doubling_takes_what_its_formula_says() {
        for world in [2usize, 4, 8, 16] {
            let len = 16 * world * 10_000;
            let (p, n) = (world as f64, 4.0 * len as f64);
            let Network { latency, per_byte, add_per_byte } = NETWORK;
            let moved = (p - 1.0) / p * n;
            let expected = 2.0 * p.log2() * latency + 2.0 * moved * per_byte + moved * add_per_byte;
            let got = all_reduce("halving-doubling", world, len);
            assert!((got / expected - 1.0).abs() < 1e-6, "{world} ranks: {got} s, formula {expected} s");
        }
    }

    /// The links carry at least 2(P−1)/P·n in any algorithm; short messages pay for latency, which grows with the rounds.
    #[test]
    fn direct_moves_the_least_and_halving_doubling_beats_ring_on_short_messages() {
        for world in [2usize, 4, 8] {
            let len = 16 * world * 100_000;
            let least = 2.0 * (world - 1) as f64 / world as f64 * 4.0 * len as f64 * NETWORK.per_byte;
            let got = all_reduce("direct", world, len);
            assert!(got >= least && got < 1.25 * least, "{world} ranks: {got} s, at least {least} s");
        }
        assert!(all_reduce("halving-doubling", 16, 1024) < 0.4 * all_reduce("ring", 16, 1024));
    }
}
