//! The simulation, against the published formulas, and the cost of a schedule against its simulation.

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
fn ring_takes_what_its_formula_says() {
    takes("ring", &[2, 3, 4, 8, 16], |world| 2.0 * (world - 1.0));
}

/// Rabenseifner 2004, section 4.
#[test]
fn halving_doubling_takes_what_its_formula_says() {
    takes("halving-doubling", &[2, 4, 8, 16], |world| 2.0 * world.log2());
}

/// The links carry at least 2(N−1)/N·n in any algorithm; short messages pay for latency, which grows with the
/// rounds.
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

#[test]
#[should_panic(expected = "rank 1 waits for ever")]
fn a_schedule_that_waits_for_nobody_is_found() {
    let range = Range { start: 0, len: 1 };
    let waits = Schedule { steps: vec![Step::Receive { from: Rank(0), range }] };
    simulate(&[Schedule { steps: Vec::new() }, waits], &Topology::single(2), &TIMES);
}
