//! Sums for readers: the readers of each block end with its sum in tree order.

use super::machine::Expression;
use super::{contributed, in_table_order, prove_at, sizes, topologies};
use crate::readers::ranges;
use crate::tree::Contributions;
use crate::*;

/// Divisions of `len` elements into blocks with readers.
fn divisions(len: usize, world: usize) -> Vec<Vec<(usize, Vec<Rank>)>> {
    let next = |rank: usize, by: usize| Rank((rank + by) % world);
    let cut = |rank: usize| rank * len / world;
    let equal = |rank: usize| cut(rank + 1) - cut(rank);
    vec![
        // One owner a block.
        (0..world).map(|rank| (equal(rank), vec![Rank(rank)])).collect(),
        // An owner and a second one.
        (0..world).map(|rank| (equal(rank), vec![Rank(rank), next(rank, 1)])).collect(),
        // Uneven and empty blocks for one, none, several and all ranks; some ranks read nothing.
        vec![
            (len / 3, vec![next(0, 1)]),
            (0, vec![Rank(0)]),
            (len / 5, Vec::new()),
            (len / 4, (0..world).step_by(2).map(Rank).collect()),
            (len - len / 3 - len / 5 - len / 4, (0..world).map(Rank).collect()),
        ],
        vec![(len, vec![Rank(world - 1)])],
    ]
}

fn prove_readers(contributions: &Contributions, topology: &Topology) -> Vec<&'static str> {
    let world = contributions.world();
    let mut proved = Vec::new();
    for (len, segment) in sizes(world) {
        for division in divisions(len, world) {
            let Readers::Blocks(blocks) = Readers::of_blocks(division) else { unreachable!() };
            let operation = Operation::ReduceToReaders(blocks.clone());
            let check = |memory: &[Vec<Expression>], _: usize, right: &dyn Fn(&str) -> bool, at: &str| {
                for (range, block) in ranges(&blocks) {
                    let read = block.readers.iter().map(|reader| &memory[reader.0]);
                    read.flat_map(|cells| &cells[range.start..range.end()])
                        .for_each(|cell| assert!(right(cell), "{at}: {cell}"));
                }
            };
            let cells = contributed(contributions, len);
            proved.extend(prove_at(contributions, topology, &operation, (len, segment), &cells, check));
        }
    }
    in_table_order(&proved)
}

#[test]
fn readers_get_the_sum_of_their_blocks() {
    let mut hierarchical = 0;
    for world in 1usize..=9 {
        for shards in [world, world + 1, 2 * world, 3 * world - 1, world.div_ceil(2)] {
            for topology in topologies(world) {
                let proved = prove_readers(&Contributions::shared(shards, world), &topology);
                assert_eq!(proved[..2], ["direct", "one-shot"], "{world} ranks, {shards} shards");
                hierarchical += usize::from(proved[2..] == ["hierarchical"]);
            }
        }
    }
    for shares in [&[0, 2][..], &[5, 0, 2], &[4, 4, 2, 2, 2, 2], &[0, 3, 0, 7, 1, 5, 0, 2]] {
        for topology in topologies(shares.len()) {
            prove_readers(&Contributions::of_shares(shares), &topology);
        }
    }
    assert!(hierarchical > 5, "{hierarchical}");
}

/// Servers contribute nothing; they may read as any other rank.
#[test]
fn readers_among_servers() {
    let contributions = Contributions::of_shares(&[1, 3, 0, 0]).with_servers(&[false, false, true, true]);
    assert_eq!(prove_readers(&contributions, &Topology::single(4)), ["direct"]);
}

#[test]
fn one_reader_a_block_costs_a_reduce_scatter_and_all_readers_an_all_reduce() {
    let direct = &ALGORITHMS[0];
    for world in [2usize, 3, 4, 7] {
        let len = 160 * world;
        let cost = |operation: &Operation| {
            let (contributions, topology) = (&Contributions::one_each(world), &Topology::single(world));
            let problem = Problem { operation, rank: Rank(0), len, contributions, topology, segment: 48 };
            Cost::of(direct, &problem).unwrap()
        };
        let read_by = |readers: Box<[Rank]>, len| ReadBlock { len, readers };
        let owners = (0..world).map(|rank| read_by([Rank(rank)].into(), 160)).collect();
        let scattered = cost(&Operation::ReduceScatter(Chunks::Equal));
        assert_eq!(cost(&Operation::ReduceToReaders(owners)), scattered);
        let all = [read_by((0..world).map(Rank).collect(), len)].into();
        assert_eq!(cost(&Operation::ReduceToReaders(all)), cost(&Operation::AllReduce));
    }
}
