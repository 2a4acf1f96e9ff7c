//! Compares the costs counted on the schedules with the literature.

use crate::sample::Sample;
use crate::tree::Contributions;
use crate::*;

fn algorithm(name: &str) -> &'static Algorithm {
    ALGORITHMS.iter().find(|algorithm| algorithm.name == name).unwrap()
}

/// Expected cost: messages one after another, elements moved in both and in one direction, elements added.
#[derive(Debug, PartialEq)]
struct Textbook(f64, f64, f64, f64);

/// Returns the cost on one node for a buffer of `len` elements cut into segments.
fn counted(name: &str, operation: &Operation, world: usize, len: usize, segment: usize) -> Cost {
    let (contributions, topology) = (&Contributions::one_each(world), &Topology::single(world));
    let problem = Problem { operation, rank: Rank(0), len, contributions, topology, segment };
    Cost::of(algorithm(name), &problem).unwrap()
}

/// Compares counted costs with a formula of N and n.
fn agrees(name: &str, operation: &Operation, worlds: &[usize], formula: impl Fn(f64, f64) -> Textbook) {
    for &world in worlds {
        // In these lengths all ranks own equally many whole cache lines; segments are longer or shorter than
        // chunks.
        for (len, segment) in [(16, 16), (16, 1 << 20), (1600, 1 << 20), (160_000, 1000)]
            .map(|(each, most)| (each * world, most))
        {
            let segment = if matches!(
                operation,
                Operation::AllReduce | Operation::ReduceScatter(_) | Operation::AllGather(_)
            ) {
                segment
            } else {
                len
            };
            let Cost { near, far, added } = counted(name, operation, world, len, segment);
            assert_eq!(far, Traffic::default());
            let Textbook(messages, exchanged, one_way, sums) = formula(world as f64, len as f64);
            let pairs = [
                (near.messages, messages),
                (near.exchanged, exchanged),
                (near.one_way, one_way),
                (added, sums),
            ];
            let close = |(got, expected): (f64, f64)| (got - expected).abs() <= 1e-9 * (1.0 + expected);
            assert!(
                pairs.into_iter().all(close),
                "{name} {operation:?} N={world} n={len}/{segment}: (counted, formula) {pairs:?}"
            );
        }
    }
}

const ANY: [usize; 9] = [2, 3, 4, 5, 7, 8, 16, 17, 30];
const POWERS: [usize; 5] = [2, 4, 8, 16, 32];

/// 2(N−1)α + 2(N−1)/N·nβ + (N−1)/N·nγ, and half of it for each half (Patarasuk & Yuan 2009).
#[test]
fn ring() {
    agrees("ring", &Operation::AllReduce, &ANY, |world, n| {
        let share = (world - 1.0) / world * n;
        Textbook(2.0 * (world - 1.0), 2.0 * share, 0.0, share)
    });
    agrees("ring", &Operation::ReduceScatter(Chunks::Equal), &ANY, |world, n| {
        let share = (world - 1.0) / world * n;
        Textbook(world - 1.0, share, 0.0, share)
    });
    agrees("ring", &Operation::AllGather(Chunks::Equal), &ANY, |world, n| {
        Textbook(world - 1.0, (world - 1.0) / world * n, 0.0, 0.0)
    });
}

/// N−2+m segments pass one after another.
#[test]
fn ring_broadcast() {
    for world in ANY {
        for segments in [1usize, 2, 3, 4, 5, 20, 1000] {
            let near = counted("ring", &Operation::Broadcast(Rank(0)), world, segments * 60, 60).near;
            assert_eq!(near.messages, world as f64 - 1.0);
            let expected = (world - 2 + segments) as f64 * 60.0;
            let got = near.exchanged + near.one_way;
            assert!((got - expected).abs() < 1e-6, "N={world} m={segments}: {got}, formula {expected}");
        }
    }
}

/// 2·log₂N·α + 2(N−1)/N·nβ + (N−1)/N·nγ (Rabenseifner 2004).
#[test]
fn halving_doubling() {
    agrees("halving-doubling", &Operation::AllReduce, &POWERS, |world, n| {
        let share = (world - 1.0) / world * n;
        Textbook(2.0 * world.log2(), 2.0 * share, 0.0, share)
    });
}

/// log₂N·(α + nβ + nγ), and log₂N·α + (N−1)/N·nβ for the all-gather (Thakur, Rabenseifner & Gropp 2005).
#[test]
fn recursive_doubling() {
    agrees("recursive-doubling", &Operation::AllReduce, &POWERS, |world, n| {
        let rounds = world.log2();
        Textbook(rounds, rounds * n, 0.0, rounds * n)
    });
    agrees("recursive-doubling", &Operation::AllGather(Chunks::Equal), &POWERS, |world, n| {
        Textbook(world.log2(), (world - 1.0) / world * n, 0.0, 0.0)
    });
}

/// log₂N·(α + nβ), plus log₂N·nγ for a reduce; an all-reduce is a reduce and then a broadcast.
#[test]
fn binomial() {
    for root in [0, 1] {
        agrees("binomial", &Operation::Broadcast(Rank(root)), &POWERS, |world, n| {
            Textbook(world.log2(), 0.0, world.log2() * n, 0.0)
        });
    }
    agrees("binomial", &Operation::Reduce(Rank(0)), &POWERS, |world, n| {
        Textbook(world.log2(), 0.0, world.log2() * n, world.log2() * n)
    });
    for world in POWERS {
        let (rounds, n) = ((world as f64).log2(), 1e6);
        let short = counted("binomial", &Operation::AllReduce, world, 1_000_000, 1_000_000);
        assert_eq!(
            (short.near.messages, short.near.exchanged, short.near.one_way),
            (2.0 * rounds, 0.0, 2.0 * rounds * n)
        );
        // All links are busy in the round between neighbors, half of them in the next round, and so on.
        let busy = (2.0 - 2.0 / world as f64) / rounds;
        assert!((short.near.busy - busy).abs() < 1e-9);
        // A long buffer goes up and down at once.
        let long = counted("binomial", &Operation::AllReduce, world, 1_000_000, 1_000);
        let moved = long.near.exchanged + long.near.one_way;
        assert!(moved < 1.35 * rounds * n, "N={world}: {moved}");
    }
}

/// 2α + 2(N−1)/N·nβ + (N−1)/N·nγ, the minimum for any algorithm. Data from one rank to all, or from all to
/// one, passes that rank's link one message after another.
#[test]
fn direct() {
    let share = |world: f64, n: f64| (world - 1.0) / world * n;
    agrees("direct", &Operation::AllReduce, &ANY, |world, n| {
        Textbook(2.0, 2.0 * share(world, n), 0.0, share(world, n))
    });
    agrees("direct", &Operation::ReduceScatter(Chunks::Equal), &ANY, |world, n| {
        Textbook(1.0, share(world, n), 0.0, share(world, n))
    });
    agrees("direct", &Operation::AllGather(Chunks::Equal), &ANY, |world, n| {
        Textbook(1.0, share(world, n), 0.0, 0.0)
    });
    for root in [Rank(0), Rank(1)] {
        agrees("direct", &Operation::Reduce(root), &ANY, |world, n| {
            Textbook(2.0, share(world, n), share(world, n), share(world, n))
        });
        agrees("direct", &Operation::Broadcast(root), &ANY, |world, n| {
            Textbook(1.0, 0.0, (world - 1.0) * n, 0.0)
        });
    }
    agrees("direct", &Operation::Gather(Rank(0)), &ANY, |world, n| Textbook(1.0, 0.0, share(world, n), 0.0));
    agrees("direct", &Operation::Scatter(Rank(0)), &ANY, |world, n| Textbook(1.0, 0.0, share(world, n), 0.0));
    let handled = counted("direct", &Operation::AllReduce, 8, 8 * 160, 1 << 20).near.handled;
    assert_eq!(handled, 4.0 * 7.0);
}

#[test]
fn one_shot() {
    agrees("one-shot", &Operation::AllReduce, &ANY, |world, n| {
        Textbook(1.0, (world - 1.0) * n, 0.0, (world - 1.0) * n)
    });
}

/// Additions read contributions in place, except those sent as copies: one copy serves all receivers.
#[test]
fn contributions_added_in_place_are_not_copied() {
    for world in ANY {
        let n = 160.0 * world as f64;
        let in_place =
            |name| counted(name, &Operation::AllReduce, world, 160 * world, 1 << 20).near.read_in_place / n;
        let share = (world as f64 - 1.0) / world as f64;
        for (name, expected) in [("direct", share), ("ring", share), ("one-shot", world as f64 - 2.0)] {
            assert!((in_place(name) - expected).abs() < 1e-9, "{name} N={world}: {}", in_place(name));
        }
        if world.is_power_of_two() {
            assert_eq!((in_place("recursive-doubling"), in_place("halving-doubling")), (0.0, share));
        }
    }
}

/// 2(ℓ−1)/ℓ·n inside nodes of ℓ ranks, 2(G−1)/G·n through the link of each of G nodes, two messages each.
#[test]
fn hierarchical_sends_between_nodes_what_it_must() {
    for (nodes, size) in [(2usize, 2usize), (2, 4), (4, 2), (4, 8), (8, 4)] {
        let (world, len) = (nodes * size, 1600 * nodes * size);
        let names: Vec<usize> = (0..world).map(|rank| rank / size).collect();
        let (contributions, topology) = (&Contributions::one_each(world), &Topology::of_names(&names));
        let problem = Problem {
            operation: &Operation::AllReduce,
            rank: Rank(0),
            len,
            contributions,
            topology,
            segment: len,
        };
        let cost = Cost::of(algorithm("hierarchical"), &problem).unwrap();
        let share = |parts: usize| 2.0 * (parts as f64 - 1.0) / parts as f64 * len as f64;
        assert_eq!((cost.near.messages, cost.far.messages), (2.0, 2.0));
        assert_eq!(
            (cost.near.handled, cost.far.handled),
            (4.0 * (size as f64 - 1.0), 4.0 * (nodes as f64 - 1.0))
        );
        assert_eq!(cost.near.exchanged + cost.near.one_way, share(size));
        assert_eq!(cost.far.exchanged + cost.far.one_way, share(nodes));
        // The ranks of a node share its link, so an algorithm that ignores nodes sends more through it.
        let direct = Cost::of(algorithm("direct"), &problem).unwrap();
        assert!(direct.far.exchanged + direct.far.one_way > 1.5 * share(nodes));
        // A sum for one reader a block is half of it.
        let block = |rank| ReadBlock { len: len / world, readers: [Rank(rank)].into() };
        let operation = &Operation::ReduceToReaders((0..world).map(block).collect());
        let problem = Problem { operation, ..problem };
        let cost = Cost::of(algorithm("hierarchical"), &problem).unwrap();
        assert_eq!(cost.far.exchanged + cost.far.one_way, share(nodes) / 2.0);
        assert_eq!(cost.near.exchanged + cost.near.one_way, share(size) / 2.0);
        let direct = Cost::of(algorithm("direct"), &problem).unwrap();
        assert!(direct.far.exchanged + direct.far.one_way >= size as f64 * share(nodes) / 2.0);
    }
}

fn operations(world: usize) -> Vec<Operation> {
    let roots = [Rank(0), Rank(world / 2)];
    let rooted = roots.into_iter().flat_map(|root| [Operation::Broadcast(root), Operation::Reduce(root)]);
    let equal = [Operation::ReduceScatter(Chunks::Equal), Operation::AllGather(Chunks::Equal)];
    [Operation::AllReduce].into_iter().chain(equal).chain(rooted).collect()
}

/// Returns the shapes of worlds: one node, two nodes, and nodes of four ranks.
fn topologies(world: usize) -> [Topology; 3] {
    let of_size = |size: usize| Topology::of_names(&(0..world).map(|rank| rank / size).collect::<Vec<_>>());
    [of_size(world), of_size(world.div_ceil(2)), of_size(4)]
}

/// Calls `look` for every fitting combination of algorithm, operation and topology.
fn each(world: usize, len: usize, segment: usize, mut look: impl FnMut(&'static Algorithm, &Problem<'_>)) {
    let contributions = &Contributions::one_each(world);
    for topology in &topologies(world) {
        for operation in &operations(world) {
            let rank = operation.root().unwrap_or(Rank(0));
            let problem = Problem { operation, rank, len, contributions, topology, segment };
            for algorithm in ALGORITHMS.iter().filter(|algorithm| (algorithm.build)(&problem).is_ok()) {
                look(algorithm, &problem);
            }
        }
    }
}

/// Returns the seconds on a network where each element moved or added takes one second.
fn volume(cost: &Cost) -> f64 {
    let moved = |traffic: &Traffic| traffic.exchanged + traffic.one_way;
    moved(&cost.near) + moved(&cost.far) + cost.added
}

/// The cost of many segments, extrapolated from schedules of few, is that of the schedule that runs.
#[test]
fn long_pipelines_cost_what_short_ones_predict() {
    for world in [2, 3, 4, 6, 8] {
        for segments in [8, 30, 100] {
            let len = 16 * world * 60;
            each(world, len, len.div_ceil(segments), |algorithm, problem| {
                let predicted = volume(&Cost::of(algorithm, problem).unwrap());
                let all = Sample::all(problem);
                let cut = all.messages(algorithm, problem, problem.segment).unwrap();
                let whole = Problem { segment: len, ..problem.clone() };
                let real = volume(&Cost::of_sample(algorithm, &whole, &all, &cut).unwrap());
                let (nodes, name) = (problem.topology.nodes().len(), algorithm.name);
                let at = format!("{name} {:?} N={world} on {nodes}, {segments} segments", problem.operation);
                assert!((predicted / real - 1.0).abs() < 0.15, "{at}: predicted {predicted}, counted {real}");
            });
        }
    }
}

#[test]
fn a_sample_costs_what_all_ranks_cost() {
    let mut sampled = std::collections::BTreeSet::new();
    for world in [96, 128, 512] {
        let len = 160 * world;
        each(world, len, len, |algorithm, problem| {
            // Larger schedules would take long and add no information.
            if (algorithm.build)(problem).unwrap().steps.len() * world > 60_000 {
                return;
            }
            let (sample, whole) = Sample::of(algorithm, problem).unwrap();
            let predicted = Cost::of_sample(algorithm, problem, &sample, &whole).unwrap();
            let all = Sample::all(problem);
            if whole.participants.len() == world {
                return;
            }
            sampled.insert(algorithm.name);
            let whole = all.messages(algorithm, problem, len).unwrap();
            let real = Cost::of_sample(algorithm, problem, &all, &whole).unwrap();
            let messages = |cost: &Cost| cost.near.messages + cost.far.messages;
            let close = |predicted: f64, real: f64| {
                (predicted / real - 1.0).abs() < if world.is_power_of_two() { 0.01 } else { 0.3 }
            };
            let right =
                close(messages(&predicted), messages(&real)) && close(volume(&predicted), volume(&real));
            let (nodes, name) = (problem.topology.nodes().len(), algorithm.name);
            assert!(
                right,
                "{name} {:?} N={world} on {nodes}: predicted {predicted:?}, counted {real:?}",
                problem.operation
            );
        });
    }
    assert!(sampled.contains("direct") && sampled.contains("halving-doubling"), "{sampled:?}");
}

/// A choice looks at a bounded number of steps per rank, for any world size.
#[test]
fn a_choice_looks_at_a_bounded_number_of_steps() {
    for world in [8, 64, 1024] {
        each(world, 160 * world, 160 * world, |algorithm, problem| {
            let (_, whole) = Sample::of(algorithm, problem).unwrap();
            let steps: usize = whole.participants.iter().map(|participant| participant.actions.len()).sum();
            assert!(steps <= 8192.max(40 * world), "{}: {steps} steps of {world} ranks", algorithm.name);
        });
    }
}

/// A choice must not depend on information that only one rank has, because all ranks must choose alike.
#[test]
fn only_one_algorithm_sends_messages_that_other_ranks_do_not_know() {
    let message = |peer| [Message { peer: Rank(peer), range: Range { start: 0, len: 1 } }];
    let operations = [
        Operation::AllToAll { send: [1, 1].into(), receive: [1, 1].into() },
        Operation::Exchange { send: message(1).into(), receive: message(1).into() },
    ];
    let (contributions, topology) = (&Contributions::one_each(2), &Topology::single(2));
    for operation in &operations {
        let problem = Problem { operation, rank: Rank(0), len: 4, contributions, topology, segment: 4 };
        assert!(problem.seen_by(Rank(1)).is_none());
        assert_eq!(ALGORITHMS.iter().filter(|algorithm| (algorithm.build)(&problem).is_ok()).count(), 1);
    }
}
