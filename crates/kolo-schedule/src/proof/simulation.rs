//! Compares the simulation with the published formulas, and the choice of an algorithm with its simulation.

use crate::tree::Contributions;
use crate::*;

const LINK: LinkTimes = LinkTimes { latency: 5e-6, per_element: 4e-9 };
const TIMES: Times = Times { near: LINK, far: LINK, add_per_element: 4e-10 };

fn all_reduce(name: &str, world: usize, len: usize) -> f64 {
    let algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name == name).unwrap();
    let (contributions, topology) = (&Contributions::one_each(world), &Topology::separate(world));
    let build = |rank| {
        let (operation, rank) = (&Operation::AllReduce, Rank(rank));
        let problem = Problem { operation, rank, len, contributions, topology, segment: len };
        (algorithm.build)(&problem).unwrap()
    };
    let schedules: Vec<Schedule> = (0..world).map(build).collect();
    simulate(&schedules, topology, &TIMES)
}

/// Compares with messages·α + 2(N−1)/N·nβ + (N−1)/N·nγ.
fn takes(name: &str, worlds: &[usize], messages: impl Fn(f64) -> f64) {
    for &world in worlds {
        let len = 16 * world * 10_000;
        let moved = (world - 1) as f64 / world as f64 * len as f64;
        let expected = messages(world as f64) * LINK.latency
            + 2.0 * moved * LINK.per_element
            + moved * TIMES.add_per_element;
        let got = all_reduce(name, world, len);
        assert!((got / expected - 1.0).abs() < 1e-6, "{world} ranks: {got} s, formula {expected} s");
    }
}

/// Thakur, Rabenseifner & Gropp 2005, section 4.4.
#[test]
fn ring_matches_its_formula() {
    takes("ring", &[2, 3, 4, 8, 16], |world| 2.0 * (world - 1.0));
}

/// Rabenseifner 2004, section 4.
#[test]
fn halving_doubling_matches_its_formula() {
    takes("halving-doubling", &[2, 4, 8, 16], |world| 2.0 * world.log2());
}

/// Links carry at least 2(N−1)/N·n in any algorithm; short messages pay for the latency of rounds.
#[test]
fn direct_moves_the_least_and_halving_doubling_beats_ring_on_short_messages() {
    for world in [2usize, 4, 8] {
        let len = 16 * world * 100_000;
        let least = 2.0 * (world - 1) as f64 / world as f64 * len as f64 * LINK.per_element;
        let got = all_reduce("direct", world, len);
        assert!(got >= least && got < 1.25 * least, "{world} ranks: {got} s, at least {least} s");
    }
    assert!(all_reduce("halving-doubling", 16, 1024) < 0.4 * all_reduce("ring", 16, 1024));
}

/// Returns the seconds of an all-reduce of `len` elements with *direct*.
fn with_servers(workers: usize, servers: usize, len: usize, segment: usize) -> f64 {
    let world = workers + servers;
    let direct = ALGORITHMS.iter().find(|algorithm| algorithm.name == "direct").unwrap();
    let of = |rank: usize| usize::from(rank < workers);
    let shares: Vec<usize> = (0..world).map(of).collect();
    let is_server: Vec<bool> = shares.iter().map(|share| *share == 0).collect();
    let contributions = &Contributions::of_shares(&shares).with_servers(&is_server);
    let topology = &Topology::separate(world);
    let build = |rank| {
        let (operation, rank) = (&Operation::AllReduce, Rank(rank));
        let problem = Problem { operation, rank, len, contributions, topology, segment };
        (direct.build)(&problem).unwrap()
    };
    let schedules: Vec<Schedule> = (0..world).map(build).collect();
    let link = LinkTimes { latency: 0.0, ..LINK };
    simulate(&schedules, topology, &Times { near: link, far: link, add_per_element: 0.0 })
}

/// Jiang et al. 2020 (BytePS), section 4.1: 2N(N−1)/(N²+kN−2k)·nβ, and nβ for k ≥ N. With fewer servers
/// than workers, messages have two lengths, so links are idle now and then.
#[test]
fn servers_match_the_formula() {
    for workers in [2usize, 3, 4, 6, 8] {
        let len = 16 * 30_000 * workers;
        for servers in (0..=workers).chain([workers + 1, 2 * workers]) {
            let (n, k) = (workers as f64, servers.min(workers) as f64);
            let formula = 2.0 * n * (n - 1.0) / (n * n + k * n - 2.0 * k) * len as f64 * LINK.per_element;
            let most = if (1..workers).contains(&servers) { 1.3 } else { 1.05 };
            let got = with_servers(workers, servers, len, len / 400);
            assert!(
                got > 0.999 * formula && got < most * formula,
                "{workers} workers, {servers} servers: {got} s, formula {formula} s"
            );
        }
    }
}

/// The choice is *direct*, the only algorithm that uses servers, where that is fastest; otherwise the
/// choice is the algorithm that the workers would use alone.
#[test]
fn long_sums_go_through_servers() {
    for (size, workers, servers, expected) in [
        (1, 3, 3, "direct"),
        (1, 4, 3, "direct"),
        (1, 4, 4, "direct"),
        (1, 8, 4, "direct"),
        (1, 8, 16, "direct"),
        // Four workers per node: *direct* would send each gradient through the node's single link.
        (4, 8, 8, "halving-doubling"),
    ] {
        let world = workers + servers;
        let is_server: Vec<bool> = (0..world).map(|rank| rank >= workers).collect();
        let shares: Vec<usize> = is_server.iter().map(|server| usize::from(!server)).collect();
        let contributions = &Contributions::of_shares(&shares).with_servers(&is_server);
        let nodes: Vec<usize> = (0..world).map(|rank| rank / size).collect();
        let (operation, topology) = (&Operation::AllReduce, &Topology::of_names(&nodes));
        let problem =
            Problem { operation, rank: Rank(0), len: 1 << 23, contributions, topology, segment: 1 << 15 };
        let choice = choose(&problem, DType::F32, &Network::default());
        assert_eq!(choice.algorithm.name, expected, "{workers} and {servers}: {}", choice.reason());
    }
}

#[test]
#[should_panic(expected = "rank 1 waits for ever")]
fn a_receive_without_a_send_panics() {
    let range = Range { start: 0, len: 1 };
    let waits = Schedule { steps: vec![Step::Receive { from: Rank(0), range }] };
    simulate(&[Schedule { steps: Vec::new() }, waits], &Topology::single(2), &TIMES);
}
