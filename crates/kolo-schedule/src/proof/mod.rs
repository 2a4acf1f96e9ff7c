//! The proof: the [`machine`] runs every schedule of every operation on symbolic contributions.

mod costs;
mod machine;
mod movement;
mod readers;
mod simulation;

use std::collections::BTreeMap;

use machine::{Expression, prove, run};

use crate::tree::Contributions;
use crate::*;

/// Returns memory in which every cell of a rank's part p holds the name of the rank's node p.
fn contributed(contributions: &Contributions, len: usize) -> Vec<Vec<Expression>> {
    (0..contributions.world())
        .map(|rank| {
            let nodes = contributions.of(Rank(rank));
            let name = |part: usize| nodes.get(part).map_or("nothing".into(), |node| node.first.to_string());
            let parts = (0..contributions.parts(Rank(rank))).map(|part| Expression::from(name(part)));
            parts.flat_map(|part| std::iter::repeat_n(part, len)).collect()
        })
        .collect()
}

fn tree(contributions: &Contributions) -> Expression {
    let names: Vec<Expression> = (0..contributions.world())
        .flat_map(|rank| contributions.of(Rank(rank)).iter().map(|node| node.first.to_string().into()))
        .collect();
    run(&contributions.program(), |n| names[n].clone())
}

/// Returns the contributions in a sum, without its parentheses.
fn set(expression: &str) -> Vec<&str> {
    let mut names: Vec<&str> = expression.split(['(', ')', '+']).filter(|name| !name.is_empty()).collect();
    names.sort();
    names
}

/// Calls [`prove_contributions`] with equal shares.
fn prove_all(
    world: usize,
    shards: usize,
    topology: &Topology,
    operation: &Operation,
    each: bool,
    memory: impl Fn(&Contributions, usize) -> Vec<Vec<Expression>>,
    check: impl Fn(&[Vec<Expression>], usize, &dyn Fn(&str) -> bool, &str),
) -> Vec<&'static str> {
    prove_contributions(&Contributions::shared(shards, world), topology, operation, each, memory, check)
}

/// Proves every algorithm on an operation, at many sizes; `check` gets the memory, the length and a test
/// for a correct sum. Returns the names of the algorithms that support the problem.
fn prove_contributions(
    contributions: &Contributions,
    topology: &Topology,
    operation: &Operation,
    each: bool,
    memory: impl Fn(&Contributions, usize) -> Vec<Vec<Expression>>,
    check: impl Fn(&[Vec<Expression>], usize, &dyn Fn(&str) -> bool, &str),
) -> Vec<&'static str> {
    let world = contributions.world();
    let mut proved = Vec::new();
    for (len, segment) in sizes(world) {
        let len = if each { len * world } else { len };
        let cells = memory(contributions, len);
        proved.extend(prove_at(contributions, topology, operation, (len, segment), &cells, &check));
    }
    in_table_order(&proved)
}

/// Lengths with the longest message.
fn sizes(world: usize) -> [(usize, usize); 5] {
    [(0, 4), (1, 4), (7, 100), (16 * world + 5, 3), (40 * world, 16)]
}

fn in_table_order(names: &[&'static str]) -> Vec<&'static str> {
    ALGORITHMS.iter().map(|algorithm| algorithm.name).filter(|name| names.contains(name)).collect()
}

/// Proves every algorithm on an operation, at one length and segment.
fn prove_at(
    contributions: &Contributions,
    topology: &Topology,
    operation: &Operation,
    (len, segment): (usize, usize),
    cells: &[Vec<Expression>],
    check: impl Fn(&[Vec<Expression>], usize, &dyn Fn(&str) -> bool, &str),
) -> Vec<&'static str> {
    let world = contributions.world();
    let expected = tree(contributions);
    let expected_set = set(&expected);
    let mut proved = Vec::new();
    for algorithm in ALGORITHMS {
        let problem = |rank: usize| Problem {
            operation,
            rank: Rank(rank),
            // In gather and scatter the other ranks' buffers are shorter than the root's.
            len: if matches!(operation, Operation::Gather(_) | Operation::Scatter(_)) {
                cells[rank].len()
            } else {
                len
            },
            contributions,
            topology,
            segment,
        };
        let schedules: Vec<_> = (0..world).map(|rank| (algorithm.build)(&problem(rank))).collect();
        if schedules.iter().all(Result::is_err) {
            continue;
        }
        // Either all ranks have a schedule or none has, because all must choose the same algorithm.
        let schedules: Vec<Schedule> = schedules.into_iter().map(Result::unwrap).collect();
        proved.push(algorithm.name);
        let cost = Cost::of(algorithm, &problem(0)).unwrap();
        assert_eq!(Ok(cost), Cost::of(algorithm, &problem(world - 1)), "all ranks choose alike");
        let sends = |schedule: &Schedule| schedule.steps.iter().any(|step| matches!(step, Step::Send { .. }));
        let messages = cost.near.messages + cost.far.messages;
        assert_eq!(messages > 0.0, schedules.iter().any(sends), "{} costs {cost:?}", algorithm.name);
        let right = |cell: &str| cell == &*expected || !algorithm.keeps_tree && set(cell) == expected_set;
        let at = format!("{} does {operation:?} of {contributions:?}", algorithm.name);
        prove(&schedules, cells, |memory| check(memory, len, &right, &at));
    }
    proved
}

fn topologies(world: usize) -> Vec<Topology> {
    let of_size = |size: usize| Topology::of_names(&(0..world).map(|rank| rank / size).collect::<Vec<_>>());
    let mut topologies = vec![Topology::single(world)];
    topologies.extend([2, 3, 4].into_iter().filter(|size| *size < world).map(of_size));
    topologies
}

#[test]
fn every_all_reduce_adds_everything_once_on_every_rank() {
    let mut proved = BTreeMap::new();
    for world in 1usize..=17 {
        // Large worlds take long and differ little.
        let uneven = if world < 10 { vec![2 * world, 3 * world - 1, world.div_ceil(2)] } else { Vec::new() };
        for shards in [world, world + 1].into_iter().chain(uneven) {
            for topology in topologies(world) {
                let operation = Operation::AllReduce;
                for name in prove_all(world, shards, &topology, &operation, false, contributed, all_equal) {
                    *proved.entry(name).or_insert(0) += 1;
                }
            }
        }
    }
    assert_eq!(proved.len(), ALGORITHMS.len(), "{proved:?}");
    assert!(proved.values().all(|count| *count > 4), "{proved:?}");
}

fn all_equal(memory: &[Vec<Expression>], len: usize, right: &dyn Fn(&str) -> bool, at: &str) {
    for cells in memory {
        assert_eq!(cells[..len], memory[0][..len], "{at}: ranks differ");
    }
    memory[0][..len].iter().for_each(|cell| assert!(right(cell), "{at}: {cell}"));
}

/// Ranks of unequal speed; some have no shards: the first, the last, or one in the middle.
#[test]
fn unequal_shares_are_added_once_in_tree_order() {
    let mut proved = BTreeMap::new();
    for shares in [
        &[3, 1][..],
        &[0, 2],
        &[5, 0, 2],
        &[1, 3, 4],
        &[2, 6, 4, 4],
        &[1, 1, 6, 0],
        &[4, 4, 2, 2, 2, 2],
        &[0, 3, 0, 7, 1, 5, 0, 2],
    ] {
        let contributions = Contributions::of_shares(shares);
        for topology in topologies(shares.len()) {
            let operation = Operation::AllReduce;
            for name in
                prove_contributions(&contributions, &topology, &operation, false, contributed, all_equal)
            {
                *proved.entry(name).or_insert(0) += 1;
            }
        }
    }
    assert!(proved.get("direct") > Some(&8), "direct adds any shares: {proved:?}");
    assert!(proved.contains_key("hierarchical"), "{proved:?}");
}

/// Ownership does not change the order, for any link rates and any shares; some ranks own nothing.
#[test]
fn uneven_ownership_keeps_the_tree() {
    for (shares, ownership) in [
        (vec![1; 4], [333, 333, 333, 0]),
        (vec![2, 1, 0, 3], [0, 1, 0, 0]),
        (vec![1; 4], [1, 2, 3, 4]),
        (vec![0, 0, 5, 1], [0, 7, 0, 2]),
    ] {
        let contributions = Contributions::of_shares(&shares).with_ownership(&ownership);
        assert_eq!(contributions.ownership(), Some(&ownership[..]));
        for topology in [Topology::single(4), Topology::separate(4)] {
            let operation = Operation::AllReduce;
            let proved =
                prove_contributions(&contributions, &topology, &operation, false, contributed, all_equal);
            assert!(proved.contains(&"direct"), "{proved:?}");
        }
    }
    assert_eq!(Contributions::one_each(3).with_ownership(&[1, 1, 1]), Contributions::one_each(3));
    assert_eq!(Contributions::one_each(3).with_ownership(&[1, 2]), Contributions::one_each(3));
}

/// Servers own parts of the sum, and every worker ends with all of it, in tree order. Workers have equal or
/// unequal shares, and one may have none; servers stand after the workers or between them.
#[test]
fn servers_add_for_workers() {
    let mut proved = BTreeMap::new();
    for workers in 1usize..=4 {
        for servers in [1, 2, 4] {
            let uneven: Vec<usize> =
                (0..workers).map(|worker| (worker + 1) % 3 + usize::from(worker == 1)).collect();
            for shares in [vec![1; workers], vec![2; workers], uneven]
                .iter()
                .filter(|shares| shares.iter().sum::<usize>() > 0)
            {
                for last in [true, false] {
                    let world = workers + servers;
                    let first = if last { workers } else { 1 };
                    let is_server: Vec<bool> =
                        (0..world).map(|rank| (first..first + servers).contains(&rank)).collect();
                    let mut of_workers = shares.iter().copied();
                    let shares: Vec<usize> = is_server
                        .iter()
                        .map(|server| if *server { 0 } else { of_workers.next().unwrap() })
                        .collect();
                    let contributions = Contributions::of_shares(&shares).with_servers(&is_server);
                    assert_eq!(
                        (0..world).map(|rank| contributions.is_server(Rank(rank))).collect::<Vec<_>>(),
                        is_server
                    );
                    let check =
                        |memory: &[Vec<Expression>], len: usize, right: &dyn Fn(&str) -> bool, at: &str| {
                            for cells in (0..world).filter(|rank| !is_server[*rank]).map(|rank| &memory[rank])
                            {
                                cells[..len].iter().for_each(|cell| assert!(right(cell), "{at}: {cell}"));
                            }
                        };
                    let pairs = Topology::of_names(&(0..world).map(|rank| rank / 2).collect::<Vec<_>>());
                    for topology in [Topology::single(world), Topology::separate(world), pairs] {
                        let operation = Operation::AllReduce;
                        for name in prove_contributions(
                            &contributions, &topology, &operation, false, contributed, check,
                        ) {
                            *proved.entry(name).or_insert(0) += 1;
                        }
                    }
                }
            }
        }
    }
    // All other algorithms run among the workers.
    assert_eq!(proved.len(), ALGORITHMS.len(), "{proved:?}");
    assert!(proved.values().all(|count| *count > 2), "{proved:?}");
}

#[test]
fn a_reduce_gives_the_root_everything() {
    for world in 1usize..=17 {
        for root in [0, world / 2, world - 1] {
            let check = |memory: &[Vec<Expression>], len: usize, right: &dyn Fn(&str) -> bool, at: &str| {
                memory[root][..len].iter().for_each(|cell| assert!(right(cell), "{at}: {cell}"));
            };
            let (topology, operation) = (Topology::single(world), Operation::Reduce(Rank(root)));
            let proved = prove_all(world, world, &topology, &operation, false, contributed, check);
            assert_eq!(proved, ["direct", "binomial"]);
        }
    }
}

/// Returns a different number of elements for each rank, zero for some.
fn varied(world: usize) -> Chunks {
    Chunks::Varied((0..world).map(|rank| rank * 7 % 5 * 3).collect())
}

#[test]
fn reduce_scatter_leaves_each_rank_its_chunk() {
    for world in 1usize..=17 {
        for chunks in [Chunks::Equal, varied(world)] {
            let total = move |chunks: &Chunks, len: usize| match chunks {
                Chunks::Equal => len,
                Chunks::Varied(counts) => counts.iter().sum(),
            };
            let operation = Operation::ReduceScatter(chunks.clone());
            let memory = |contributions: &Contributions, len| contributed(contributions, total(&chunks, len));
            let check = |memory: &[Vec<Expression>], len: usize, right: &dyn Fn(&str) -> bool, at: &str| {
                for (rank, range) in chunks.ranges(len, world).into_iter().enumerate() {
                    let own = &memory[rank][range.start..range.end()];
                    own.iter().for_each(|cell| assert!(right(cell), "{at}: {cell}"));
                }
            };
            let topology = Topology::single(world);
            let proved = prove_all(world, world, &topology, &operation, true, memory, check);
            assert_eq!(proved, ["direct", "ring"]);
        }
    }
}
